"""The q8 product: float32 activations times int8 weights, (tokens, columns) → (tokens, rows)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch

from memscope_runners.q8.compiled import load_compiled
from memscope_runners.q8.slab import GROUP, Q8Weight

Product = Callable[[torch.Tensor, Q8Weight], torch.Tensor]
BLOCK_ELEMENTS = 1 << 18  # float32 weights of one block stay in a core's cache


def linear(
    x: torch.Tensor, weight: Q8Weight | torch.Tensor, product: Product | None = None
) -> torch.Tensor:
    """x @ weightᵀ for a q8 weight, by `product` or this machine's best, or for a plain tensor."""
    if isinstance(weight, Q8Weight):
        return (product or best_product()[1])(x, weight)
    return x @ weight.to(x.dtype).T


@contextmanager
def one_thread() -> Iterator[None]:
    """Run small work on one thread: waking OpenMP's spinning threads costs more than it saves."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def product_name() -> str:
    """The product in use on the host: `compiled`, or `dequantize-blocks` without a compiler."""
    return best_product()[0]


@lru_cache(maxsize=1)
def best_product() -> tuple[str, Product]:
    """The fastest product here that gives the same bits each time, and its name."""
    compiled = load_compiled()
    return ("dequantize-blocks", dequantize_blocks) if compiled is None else ("compiled", compiled)


def dequantize_float32(x: torch.Tensor, weight: Q8Weight) -> torch.Tensor:
    """The whole weight in float32, then a product."""
    return x @ weight.dequantize().T


def dequantize_bfloat16(x: torch.Tensor, weight: Q8Weight) -> torch.Tensor:
    """The whole weight in bfloat16, then a product in bfloat16."""
    return (x.to(torch.bfloat16) @ weight.dequantize(torch.bfloat16).T).float()


def dequantize_blocks(x: torch.Tensor, weight: Q8Weight) -> torch.Tensor:
    """A few rows at a time in float32, into one scratch block that stays in cache."""
    rows, columns = weight.shape
    step = max(1, BLOCK_ELEMENTS // columns)
    scratch = torch.empty(step, columns // GROUP, GROUP)
    out = torch.empty(rows, x.shape[0])
    with one_thread():
        for start in range(0, rows, step):
            q = weight.q[start : start + step].view(-1, columns // GROUP, GROUP)
            block = scratch[: q.shape[0]]
            torch.mul(q, weight.scale[start : start + step].float().unsqueeze(-1), out=block)
            torch.mm(block.view(-1, columns), x.T, out=out[start : start + step])
    return out.T.contiguous()
