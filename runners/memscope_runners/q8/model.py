"""The forward pass of the Llama family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch.nn import functional

from memscope_runners.q8.config import ModelConfig
from memscope_runners.q8.kv_cache import KvCache
from memscope_runners.q8.linear import Product, linear
from memscope_runners.q8.weights import Weight, WeightSource


class Model:
    """RMSNorm, rope, grouped-query attention and SwiGLU over weights that a source hands in.

    Activations, norms and logits are float32. `fixed` holds the norms by their names in
    `ModelConfig.fixed_shapes`.
    """

    def __init__(
        self,
        config: ModelConfig,
        fixed: Mapping[str, torch.Tensor],
        weights: WeightSource,
        product: Product | None = None,
    ) -> None:
        self.config = config
        self._weights = weights
        self._q8_product = product
        self._norms = {name: fixed[name].float() for name in fixed if name.endswith("norm")}
        self._rope = RopeTable(config)

    @torch.inference_mode()
    def forward(self, token_ids: Sequence[int], kv: KvCache) -> torch.Tensor:
        """Logits float32 (vocab,) behind the last of `token_ids`, which continue `kv`."""
        return self._head(self._sweep(token_ids, kv)[-1:])[0]

    @torch.inference_mode()
    def all_logits(self, token_ids: Sequence[int], kv: KvCache) -> torch.Tensor:
        """Logits float32 (tokens, vocab) behind each of `token_ids`, which continue `kv`."""
        return self._head(self._sweep(token_ids, kv))

    def _sweep(self, token_ids: Sequence[int], kv: KvCache) -> torch.Tensor:
        assert 0 < len(token_ids) <= kv.tokens - kv.length
        x = self._weights.head_rows(torch.tensor(token_ids))  # (tokens, hidden)
        rope = self._rope.rows(kv.length, len(token_ids))
        for layer in range(self.config.layers):
            weights = self._weights.enter_layer(layer)
            x = x + self._attention(
                self._norm(x, f"layers.{layer}.attention_norm"), weights, rope, kv, layer
            )
            x = x + self._mlp(self._norm(x, f"layers.{layer}.mlp_norm"), weights)
        kv.advance(len(token_ids))
        return x

    def _product(self, x: torch.Tensor, weight: Weight) -> torch.Tensor:
        return linear(x, weight, self._q8_product)

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.rms_norm(
            x, (self.config.hidden,), self._norms[name], self.config.norm_epsilon
        )

    def _attention(
        self,
        x: torch.Tensor,
        weights: Mapping[str, Weight],
        rope: tuple[torch.Tensor, torch.Tensor],
        kv: KvCache,
        layer: int,
    ) -> torch.Tensor:
        config, tokens = self.config, x.shape[0]
        heads = (config.heads, config.kv_heads, config.kv_heads)
        q, k, v = (
            self._product(x, weights[name]).view(tokens, count, config.head_dim).transpose(0, 1)
            for name, count in zip("qkv", heads, strict=True)
        )  # (heads, tokens, head_dim)
        q, k = rotate(q, rope), rotate(k, rope)
        keys, values = kv.extend(layer, k, v)
        mixed = attend(q, keys, values)
        return self._product(mixed.transpose(0, 1).reshape(tokens, -1), weights["o"])

    def _mlp(self, x: torch.Tensor, weights: Mapping[str, Weight]) -> torch.Tensor:
        gate = functional.silu(self._product(x, weights["gate"]), inplace=True)
        gate *= self._product(x, weights["up"])
        return self._product(gate, weights["down"])

    def _head(self, x: torch.Tensor) -> torch.Tensor:
        return self._product(self._norm(x, "norm"), self._weights.enter_head())


class RopeTable:
    """Cosines and sines of rotary positions, computed as far as they are asked for."""

    def __init__(self, config: ModelConfig) -> None:
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        self._frequencies = 1.0 / config.rope_theta**exponents
        self._cosines = self._sines = torch.empty(0, config.head_dim)

    def rows(self, start: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of positions start … start + count − 1, each (count, head_dim)."""
        end = start + count
        if end > len(self._cosines):
            positions = torch.arange(max(end, 2 * len(self._cosines)), dtype=torch.float32)
            angles = torch.outer(positions, self._frequencies)
            angles = torch.cat((angles, angles), dim=-1)
            self._cosines, self._sines = angles.cos(), angles.sin()
        return self._cosines[start:end], self._sines[start:end]


def rotate(x: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotary embedding of (heads, tokens, head_dim), halves paired as Hugging Face's Llama does."""
    cosines, sines = rope
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-second, first), dim=-1) * sines


def attend(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Causal attention of the last q.shape[1] positions: (heads, tokens, head_dim) in and out.

    `keys` and `values` are (kv_heads, past + tokens, head_dim); heads share them in groups.
    """
    tokens, total = q.shape[1], keys.shape[1]
    if tokens == 1:
        grouped = q.view(keys.shape[0], -1, q.shape[2])  # (kv_heads, group, head_dim)
        scores = torch.matmul(grouped, keys.transpose(1, 2)) * q.shape[2] ** -0.5
        return torch.matmul(scores.softmax(dim=-1), values).view(q.shape)
    mask = torch.ones(tokens, total, dtype=torch.bool).tril(total - tokens)
    return functional.scaled_dot_product_attention(
        q[None], keys[None], values[None], attn_mask=mask, enable_gqa=True
    )[0]
