"""The q8 product in C, compiled once for this machine."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from memscope.errors import MemscopeError
from memscope_runners.q8.cache import cache_folder
from memscope_runners.q8.slab import Q8Weight

SOURCE = Path(__file__).with_name("product.c")
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fPIC", "-shared", "-pthread")
COMPILERS = ("cc", "gcc", "clang")
TIMEOUT_S = 120


def load_compiled() -> Callable[[torch.Tensor, Q8Weight], torch.Tensor] | None:
    """The compiled product, or None where it cannot be compiled, loaded or trusted."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None or os.name != "posix":
        return None
    try:
        product = CompiledProduct(_library(compiler))
    except (OSError, AttributeError, subprocess.SubprocessError, MemscopeError):
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


def _library(compiler: str) -> Path:
    """The shared library in the cache, compiled if this source on this processor is new."""
    identity = [SOURCE.read_bytes(), " ".join(FLAGS).encode(), platform.machine().encode()]
    digest = hashlib.sha256(b"\0".join([*identity, _processor()])).hexdigest()[:16]
    target = cache_folder() / f"q8-product-{digest}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            built = Path(folder) / target.name
            command = [compiler, *FLAGS, str(SOURCE), "-o", str(built)]
            subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S)
            built.replace(target)
    return target


def _processor() -> bytes:
    """What the code was tuned for, so that a cache shared by two machines holds two libraries."""
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
