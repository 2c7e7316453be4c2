"""The operations of a layer, independent of the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from memscope_runners.q8.config import ModelConfig
from memscope_runners.q8.kv_cache import KvCache
from memscope_runners.q8.weights import Weight


@dataclass(frozen=True, slots=True)
class FixedLayer:
    """The unquantized parts of a layer, float32; None if the family has no such part.

    attention_norm, mlp_norm: (hidden,). qk_norms: two of (head_dim,). qkv_bias: (all rows,).
    """

    attention_norm: torch.Tensor
    mlp_norm: torch.Tensor
    qk_norms: tuple[torch.Tensor, torch.Tensor] | None
    qkv_bias: torch.Tensor | None

    @classmethod
    def of(cls, fixed: Mapping[str, torch.Tensor], layer: int) -> FixedLayer:
        """The parts by their names in `ModelConfig.fixed_shapes`."""

        parts = {
            name: fixed[key].float()
            for name in ("attention_norm", "mlp_norm", "q_norm", "k_norm", "qkv_bias")
            if (key := f"layers.{layer}.{name}") in fixed
        }
        qk_norms = (parts["q_norm"], parts["k_norm"]) if "q_norm" in parts else None
        norms = parts["attention_norm"], parts["mlp_norm"]
        return cls(*norms, qk_norms, parts.get("qkv_bias"))


Rope = tuple[torch.Tensor, torch.Tensor]  # cosines and sines, each (tokens, head_dim)


class Ops(Protocol):
    """The steps of a forward pass; x is float32 (tokens, hidden)."""

    def __init__(self, config: ModelConfig) -> None: ...

    def norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """RMSNorm."""
        ...

    def attention(
        self,
        x: torch.Tensor,
        weights: Mapping[str, Weight],
        fixed: FixedLayer,
        rope: Rope,
        kv: KvCache,
        layer: int,
    ) -> torch.Tensor:
        """x plus attention over x's norm; writes keys and values to `kv`."""
        ...

    def mlp(
        self, x: torch.Tensor, weights: Mapping[str, Weight], fixed: FixedLayer
    ) -> torch.Tensor:
        """x plus SwiGLU over x's norm."""
        ...

    def product(self, x: torch.Tensor, weight: Weight) -> torch.Tensor:
        """(tokens, columns) → (tokens, rows)."""
        ...
