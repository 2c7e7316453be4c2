"""The q8 product: float32 activations times int8 weights."""

from __future__ import annotations

from collections.abc import Callable

import torch

from memscope_runners.q8.slab import Q8Weight

Product = Callable[[torch.Tensor, Q8Weight | torch.Tensor], torch.Tensor]


def dequantize_float32(x: torch.Tensor, weight: Q8Weight | torch.Tensor) -> torch.Tensor:
    """x @ weightᵀ, (tokens, columns) → (tokens, rows)."""
    full = weight.dequantize() if isinstance(weight, Q8Weight) else weight
    return x @ full.T


def best_product() -> Product:
    return dequantize_float32


def product_name() -> str:
    return "dequantize_float32"
