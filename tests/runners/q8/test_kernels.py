"""The Triton kernels against float64 on random inputs, and against themselves for their bits."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from memscope_runners.q8.host_ops import attend as host_attend
from memscope_runners.q8.host_ops import rotate as host_rotate
from memscope_runners.q8.slab import Q8Weight

pytestmark = pytest.mark.gpu
SHAPES = [(2048, 2048), (1024, 2048), (6144, 2048), (2048, 6144), (151936, 2048), (200, 576)]


@pytest.fixture(scope="module")
def kernels() -> object:
    return pytest.importorskip("memscope_runners.q8.kernels", reason="Triton is not installed")


def random_weight(rows: int, columns: int, generator: torch.Generator) -> Q8Weight:
    q = torch.randint(-127, 128, (rows, columns), generator=generator).to(torch.int8)
    scale = torch.rand(rows, columns // 32, generator=generator).half() / 100
    return Q8Weight(q.cuda(), scale.cuda())


def relative_error(out: torch.Tensor, exact: torch.Tensor) -> float:
    return float((out.double() - exact).norm() / exact.norm())


def exact_product(x: torch.Tensor, weight: Q8Weight) -> torch.Tensor:
    return x.double() @ weight.dequantize(torch.float64).T


@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("shape", SHAPES)
def test_product_is_right_and_bit_stable(kernels, shape, tokens) -> None:  # type: ignore[no-untyped-def]
    generator = torch.Generator().manual_seed(sum(shape))
    weight = random_weight(*shape, generator)
    x = torch.randn(tokens, shape[1], generator=generator).cuda()
    residual = torch.randn(tokens, shape[0], generator=generator).cuda()
    out = kernels.product(x, weight, residual)
    error = relative_error(out, exact_product(x, weight) + residual.double())
    print(f"{shape} × {tokens}: relative error {error:.1e}")
    assert error < 1e-5
    assert all(torch.equal(out, kernels.product(x, weight, residual)) for _ in range(20))


def test_gate_and_up_in_one_kernel(kernels) -> None:  # type: ignore[no-untyped-def]
    generator = torch.Generator().manual_seed(3)
    gate, up = (random_weight(6144, 2048, generator) for _ in range(2))
    x = torch.randn(2, 2048, generator=generator).cuda() / 10
    exact = functional.silu(exact_product(x, gate)) * exact_product(x, up)
    assert relative_error(kernels.gated(x, gate, up), exact) < 1e-5


@pytest.mark.parametrize("past", [0, 7, 300])
def test_attention_against_torch(kernels, past) -> None:  # type: ignore[no-untyped-def]
    heads, kv_heads, head_dim, tokens = 16, 8, 128, 3
    generator = torch.Generator().manual_seed(past)
    columns, rows = 256, (heads + 2 * kv_heads) * head_dim
    weights = [random_weight(count * head_dim, columns, generator) for count in (16, 8, 8)]
    bias = torch.randn(rows, generator=generator).cuda()
    norms = tuple(torch.rand(head_dim, generator=generator).cuda() for _ in range(2))
    x = torch.randn(tokens, columns, generator=generator).cuda()
    angles = torch.rand(tokens, head_dim // 2, generator=generator).cuda().repeat(1, 2)
    rope = angles.cos().contiguous(), angles.sin().contiguous()
    cache = torch.randn(2, kv_heads, past + tokens + 9, head_dim, generator=generator).cuda()

    qkv = kernels.qkv(x, *weights, bias)
    exact = torch.cat([exact_product(x, weight) for weight in weights], dim=1) + bias.double()
    assert relative_error(qkv, exact) < 1e-5
    parts = qkv.double().split([heads * head_dim, kv_heads * head_dim, kv_heads * head_dim], dim=1)
    q, k, v = (part.view(tokens, -1, head_dim).transpose(0, 1) for part in parts)
    doubles = tuple(part.double() for part in rope)
    q, k = (
        host_rotate(functional.rms_norm(part, (head_dim,), norm.double(), 1e-6), doubles)
        for part, norm in zip((q, k), norms, strict=True)
    )
    keys, values = (
        torch.cat([old[:, :past].double(), new], dim=1)
        for old, new in zip(cache, (k, v), strict=True)
    )
    mine = cache.clone()
    queries = kernels.rotate(
        qkv, rope, norms, (mine[0], mine[1]), heads=heads, position=past, epsilon=1e-6
    )
    assert relative_error(mine[0][:, : past + tokens], keys) < 1e-5
    assert relative_error(mine[1][:, : past + tokens], values) < 1e-5
    out = kernels.attend(queries, (mine[0], mine[1]), past=past)
    exact = host_attend(q.cpu(), keys.cpu(), values.cpu()).transpose(0, 1).reshape(tokens, -1)
    assert relative_error(out.cpu(), exact) < 1e-5


@pytest.mark.gpu(alone=True)
def test_bandwidth_of_the_head(kernels) -> None:  # type: ignore[no-untyped-def]
    weight = random_weight(151936, 2048, torch.Generator().manual_seed(1))
    x = torch.randn(1, 2048).cuda()
    seconds = _median_s(lambda: kernels.product(x, weight))
    size = weight.q.nbytes + weight.scale.nbytes
    print(f"lm_head: {seconds * 1e6:.0f} µs, {size / seconds / 1e12:.2f} TB/s")


def _median_s(call: Callable[[], object]) -> float:
    times = []
    for _ in range(30):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)
