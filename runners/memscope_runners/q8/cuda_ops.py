"""A layer on a GPU, in the Triton kernels: six launches for attention, three for the rest."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from memscope.errors import MemscopeError
from memscope_runners.q8 import kernels
from memscope_runners.q8.config import ModelConfig
from memscope_runners.q8.kv_cache import KvCache
from memscope_runners.q8.ops import FixedLayer, Rope
from memscope_runners.q8.slab import Q8Weight
from memscope_runners.q8.weights import Weight


class CudaOps:
    """Float32 activations, q8 weights; the same bits for the same inputs.

    Raises MemscopeError if the kernels do not support the model's heads.
    """

    def __init__(self, config: ModelConfig) -> None:
        if config.head_dim.bit_count() != 1:
            raise MemscopeError(
                f"The kernels take heads of a power of two, not heads of {config.head_dim}.",
                "Decode it with --device host.",
            )
        self._config = config

    def norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return kernels.norm(x, weight, self._config.norm_epsilon)

    def attention(
        self,
        x: torch.Tensor,
        weights: Mapping[str, Weight],
        fixed: FixedLayer,
        rope: Rope,
        kv: KvCache,
        layer: int,
    ) -> torch.Tensor:
        config, cache = self._config, kv.layer(layer)
        normed = self.norm(x, fixed.attention_norm)
        q, k, v, o = (q8(weights[name]) for name in "qkvo")
        qkv = kernels.qkv(normed, q, k, v, fixed.qkv_bias)
        queries = kernels.rotate(
            qkv,
            rope,
            fixed.qk_norms,
            cache,
            heads=config.heads,
            position=kv.length,
            epsilon=config.norm_epsilon,
        )
        return kernels.product(kernels.attend(queries, cache, past=kv.length), o, x)

    def mlp(
        self, x: torch.Tensor, weights: Mapping[str, Weight], fixed: FixedLayer
    ) -> torch.Tensor:
        normed = self.norm(x, fixed.mlp_norm)
        gated = kernels.gated(normed, q8(weights["gate"]), q8(weights["up"]))
        return kernels.product(gated, q8(weights["down"]), x)

    def product(self, x: torch.Tensor, weight: Weight) -> torch.Tensor:
        return kernels.product(x, q8(weight))


def q8(weight: Weight) -> Q8Weight:
    """The weight; on a GPU it is always quantized."""
    assert isinstance(weight, Q8Weight)
    return weight
