"""Float weights to q8."""

from __future__ import annotations

import torch

from memscope.errors import MemscopeError
from memscope.units import format_bytes
from memscope_runners.q8.floats import FloatModel
from memscope_runners.q8.slab import GROUP, Q8Weight

BLOCK_ELEMENTS = 1 << 20  # float32 copies of a block stay small beside a slab


def quantize(weight: torch.Tensor) -> Q8Weight:
    """(rows, columns) to q8: scale = max|w| / 127 in each group of 32, kept as float16.

    The arithmetic of ggml's Q8_0 (quantize_row_q8_0_ref): q is rounded with the float32 scale.
    """
    rows, columns = weight.shape
    groups = weight.float().reshape(rows, columns // GROUP, GROUP)
    scale = groups.abs().amax(dim=-1) / 127.0
    inverse = torch.where(scale > 0, 1.0 / scale, 0.0)
    q = (groups * inverse.unsqueeze(-1)).round_().to(torch.int8)
    return Q8Weight(q.view(rows, columns), scale.to(torch.float16))


def quantize_slab(model: FloatModel, layer: int) -> torch.Tensor:
    """One layer's slab, uint8 (bytes,), padding zero; layer L is the head.

    Raises MemscopeError for weights that q8 cannot hold.
    """
    is_head = layer == model.config.layers
    layout = model.config.head_layout if is_head else model.config.layer_layout
    buffer = _zeros(layout.bytes)
    for name, target in layout.weights(buffer).items():
        full_name = name if is_head else f"layers.{layer}.{name}"
        _quantize_into(target, model.tensor(full_name))
        if not target.scale.isfinite().all():
            raise MemscopeError(
                f"{full_name} holds weights that are not finite, or too large for q8.",
                "Fetch the model again.",
            )
    return buffer


def _zeros(count: int) -> torch.Tensor:
    try:
        return torch.zeros(count, dtype=torch.uint8)
    except RuntimeError:
        raise MemscopeError(
            f"A layer of this model takes {format_bytes(count)}, more memory than there is.",
            "Name a smaller model, or check its config.",
        ) from None


def _quantize_into(target: Q8Weight, weight: torch.Tensor) -> None:
    """Quantize in blocks of rows, so a large head is never in memory in float32."""
    rows, columns = weight.shape
    step = max(1, BLOCK_ELEMENTS // columns)
    for start in range(0, rows, step):
        block = quantize(weight[start : start + step])
        target.q[start : start + step] = block.q
        target.scale[start : start + step] = block.scale
