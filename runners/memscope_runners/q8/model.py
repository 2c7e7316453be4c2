"""The forward pass of the Llama family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from memscope_runners.q8.config import ModelConfig
from memscope_runners.q8.host_ops import HostOps
from memscope_runners.q8.kv_cache import KvCache
from memscope_runners.q8.ops import FixedLayer, Ops
from memscope_runners.q8.rope import RopeTable
from memscope_runners.q8.weights import WeightSource


class Model:
    """Embedding, layers, norm and head, with weights from a WeightSource.

    Activations, norms and logits are float32 on the device of `fixed`, which holds the norms by
    their names in `ModelConfig.fixed_shapes`.
    """

    def __init__(
        self,
        config: ModelConfig,
        fixed: Mapping[str, torch.Tensor],
        weights: WeightSource,
        ops: Ops | None = None,
    ) -> None:
        self.config = config
        self._weights = weights
        self._ops = ops or HostOps(config)
        self._norm = fixed["norm"].float()
        self._layers = [FixedLayer.of(fixed, layer) for layer in range(config.layers)]
        self._rope = RopeTable(config, self._norm.device)

    @torch.inference_mode()
    def forward(self, token_ids: Sequence[int], kv: KvCache) -> torch.Tensor:
        """Logits float32 (vocab,) after the last of `token_ids`, which continue `kv`."""
        return self._head(self._sweep(token_ids, kv)[-1:])[0]

    @torch.inference_mode()
    def all_logits(self, token_ids: Sequence[int], kv: KvCache) -> torch.Tensor:
        """Logits float32 (tokens, vocab) after each of `token_ids`, which continue `kv`."""
        return self._head(self._sweep(token_ids, kv))

    def _sweep(self, token_ids: Sequence[int], kv: KvCache) -> torch.Tensor:
        assert 0 < len(token_ids) <= kv.tokens - kv.length
        ids = torch.tensor(token_ids, device=self._norm.device)
        x = self._weights.head_rows(ids)  # (tokens, hidden)
        rope = self._rope.rows(kv.length, len(token_ids))
        ops = self._ops
        for layer, fixed in enumerate(self._layers):
            weights = self._weights.enter_layer(layer)
            x = ops.attention(x, weights, fixed, rope, kv, layer)
            x = ops.mlp(x, weights, fixed)
        kv.advance(len(token_ids))
        return x

    def _head(self, x: torch.Tensor) -> torch.Tensor:
        return self._ops.product(self._ops.norm(x, self._norm), self._weights.enter_head())


def greedy(logits: torch.Tensor) -> int:
    """The most likely token of logits (vocab,); the lowest id if several are equal."""
    return int(torch.argmax(logits))
