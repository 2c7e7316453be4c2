"""The q8 product."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from memscope_runners.q8 import linear
from memscope_runners.q8.compiled import load_compiled
from memscope_runners.q8.quantize import quantize
from memscope_runners.q8.slab import Q8Weight

SHAPES = [(1, 32), (33, 64), (700, 576), (576, 1536)]


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def compiled() -> linear.Product:
    product = load_compiled()
    if product is None:
        pytest.skip("there is no C compiler that makes the product")
    return product


def example(rows: int, columns: int, tokens: int) -> tuple[torch.Tensor, Q8Weight]:
    generator = torch.Generator().manual_seed(rows)
    weight = quantize(torch.randn(rows, columns, generator=generator))
    return torch.randn(tokens, columns, generator=generator), weight


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tokens", [1, 3, 4, 9])
@pytest.mark.parametrize("name", ["best", "dequantize_blocks", "dequantize_float32"])
def test_product_is_close_to_float64(shape: tuple[int, int], tokens: int, name: str) -> None:
    product = linear.best_product()[1] if name == "best" else getattr(linear, name)
    x, weight = example(*shape, tokens)
    expected = x.double() @ weight.dequantize(torch.float64).T
    assert (product(x, weight) - expected).abs().max() <= 2e-6 * shape[1]


@pytest.mark.usefixtures("threads")
def test_bits_do_not_depend_on_the_number_of_threads(compiled: linear.Product) -> None:
    x, weight = example(700, 576, 9)
    torch.set_num_threads(1)
    alone = compiled(x, weight)
    torch.set_num_threads(3)
    assert all(torch.equal(compiled(x, weight), alone) for _ in range(50))


def test_bits_do_not_depend_on_the_tokens_beside(compiled: linear.Product) -> None:
    x, weight = example(700, 576, 9)
    together = compiled(x, weight)
    assert torch.equal(together, torch.cat([compiled(row[None], weight) for row in x]))


def test_without_a_compiler_the_fallback_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMSCOPE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    linear.best_product.cache_clear()
    try:
        assert linear.product_name() == "dequantize-blocks"
    finally:
        linear.best_product.cache_clear()


def test_a_failing_compiler_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMSCOPE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("memscope_runners.q8.compiled.FLAGS", ("--no-such-flag",))
    assert load_compiled() is None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_plain_weight_is_a_plain_product() -> None:
    x, weight = torch.randn(2, 32), torch.randn(5, 32)
    assert torch.equal(linear.linear(x, weight), x @ weight.T)
