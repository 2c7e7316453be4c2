"""The q8 product in C, compiled once for this machine."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable
from pathlib import Path

import torch

from memscope.errors import MemscopeError
from memscope.native import build
from memscope_runners.q8.slab import Q8Weight

SOURCE = Path(__file__).with_name("product.c")
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fPIC", "-shared", "-pthread")


def load_compiled() -> Callable[[torch.Tensor, Q8Weight], torch.Tensor] | None:
    """The compiled product, or None if it cannot be compiled, loaded or trusted."""
    if os.name != "posix":
        return None
    try:
        product = CompiledProduct(build(SOURCE, FLAGS, tuned_for=_processor()))
    except (OSError, AttributeError, MemscopeError):
        return None
    return product if _is_right(product) else None


class CompiledProduct:
    """x @ weightᵀ in float32; the same bits whatever the number of threads or of tokens."""

    def __init__(self, path: Path) -> None:
        self._call = ctypes.CDLL(str(path)).q8_product  # CDLL gives the GIL up during the call
        self._call.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int] * 4
        self._call.restype = None

    def __call__(self, x: torch.Tensor, weight: Q8Weight) -> torch.Tensor:
        q, scale = weight.q, weight.scale
        tokens, columns = x.shape
        rows = q.shape[0]
        assert q.is_contiguous()
        assert scale.is_contiguous()
        x = x.contiguous()
        out = torch.empty(tokens, rows)
        self._call(
            x.data_ptr(),
            q.data_ptr(),
            scale.data_ptr(),
            out.data_ptr(),
            tokens,
            rows,
            columns,
            torch.get_num_threads(),
        )
        return out


def _processor() -> bytes:
    """The processor the code was tuned for: two machines may share a cache folder."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return platform.processor().encode()
    return b"".join(sorted({line for line in lines if line.startswith((b"flags", b"Features"))}))


def _is_right(product: CompiledProduct) -> bool:
    generator = torch.Generator().manual_seed(0)
    q = torch.randint(-127, 128, (70, 64), generator=generator).to(torch.int8)
    weight = Q8Weight(q, torch.rand(70, 2, generator=generator).to(torch.float16))
    x = torch.randn(5, 64, generator=generator)
    return torch.allclose(product(x, weight), x @ weight.dequantize().T, rtol=1e-4, atol=1e-2)
