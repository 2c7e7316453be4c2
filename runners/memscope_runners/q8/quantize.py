"""Float weights to q8."""

from __future__ import annotations

import torch

from memscope_runners.q8.floats import FloatModel
from memscope_runners.q8.slab import GROUP, Q8Weight, SlabLayout


def quantize(weight: torch.Tensor) -> Q8Weight:
    """(rows, columns) to q8: scale = max|w| / 127 in each group of 32, kept as float16.

    The arithmetic of ggml's Q8_0 (quantize_row_q8_0_ref): q is rounded with the float32 scale.
    """
    rows, columns = weight.shape
    groups = weight.float().view(rows, columns // GROUP, GROUP)
    scale = groups.abs().amax(dim=-1) / 127.0
    inverse = torch.where(scale > 0, 1.0 / scale, 0.0)
    q = (groups * inverse.unsqueeze(-1)).round_().to(torch.int8)
    return Q8Weight(q.view(rows, columns), scale.to(torch.float16))


def write_slab(model: FloatModel, layer: int, layout: SlabLayout) -> torch.Tensor:
    """One layer's slab, uint8 (bytes,), padding zero; layer L is the head."""
    buffer = torch.zeros(layout.bytes, dtype=torch.uint8)
    prefix = f"layers.{layer}." if layer < model.config.layers else ""
    for name, target in layout.weights(buffer).items():
        weight = quantize(model.tensor(prefix + name))
        target.q.copy_(weight.q)
        target.scale.copy_(weight.scale)
    return buffer
