"""Float to q8."""

from __future__ import annotations

from dataclasses import dataclass, replace

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memscope.errors import MemscopeError
from memscope_runners.checkpoint.synthetic import TINY, SyntheticModel
from memscope_runners.q8.quantize import quantize, quantize_slab
from memscope_runners.q8.slab import GROUP


@given(st.integers(0, 2**31), st.floats(-3, 3))
def test_error_is_at_most_half_a_step(seed: int, exponent: float) -> None:
    torch.manual_seed(seed)
    weight = torch.randn(7, 96) * 10**exponent
    q8 = quantize(weight)
    step = weight.view(7, 3, GROUP).abs().amax(-1, keepdim=True) / 127
    scale_error = torch.clamp(step * 2.0**-11, min=2.0**-25)  # of float16, also where subnormal
    error = (q8.dequantize() - weight).view(7, 3, GROUP).abs()
    assert (error <= 1.0001 * (step / 2 + 127 * scale_error)).all()


def test_scales_and_values_are_those_of_ggml() -> None:
    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(1))
    q8 = quantize(weight)
    blocks = gguf.quantize(weight.numpy(), gguf.GGMLQuantizationType.Q8_0).reshape(64, 8, 34)
    scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0]
    assert np.array_equal(q8.scale.numpy(), scales)
    assert np.array_equal(q8.q.numpy(), blocks[..., 2:].reshape(64, 256).view(np.int8))


def test_a_group_of_zeros_stays_zero() -> None:
    weight = torch.zeros(2, 64)
    weight[0, 40] = 3.0
    assert torch.equal(quantize(weight).dequantize()[1], torch.zeros(64))
    assert torch.equal(quantize(weight).dequantize()[0, :32], torch.zeros(32))


def test_rows_are_the_dequantized_rows() -> None:
    q8 = quantize(torch.randn(9, 64))
    indices = torch.tensor([8, 0, 8])
    assert torch.equal(q8.rows(indices), q8.dequantize()[indices])


@dataclass(frozen=True, slots=True)
class SpoiltModel(SyntheticModel):
    """One weight of one entry is not what it was."""

    value: float

    def tensor(self, name: str) -> torch.Tensor:
        tensor = SyntheticModel.tensor(self, name)
        if name == "layers.1.up":
            tensor[3, 40] = self.value
        return tensor


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_weights_that_q8_cannot_hold_are_named(value: float) -> None:
    model = SpoiltModel(TINY, value)
    quantize_slab(model, 0)
    with pytest.raises(MemscopeError, match=r"layers\.1\.up"):
        quantize_slab(model, 1)


def test_a_layer_larger_than_memory_is_one_sentence() -> None:
    giant = replace(TINY, hidden=1 << 20, heads=1 << 20, kv_heads=1, head_dim=1 << 20)
    with pytest.raises(MemscopeError, match="more memory than there is"):
        quantize_slab(SyntheticModel(giant), 0)
