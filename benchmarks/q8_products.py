"""Ways to compute the q8 product on the host, side by side."""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass
from time import perf_counter_ns

import torch

from memscope.cli.bench import print_table, run_script
from memscope.cli.progress import ProgressBars
from memscope_runners.checkpoint.fetch import open_model
from memscope_runners.q8 import linear
from memscope_runners.q8.slab import GROUP, Q8Weight
from memscope_runners.q8.weights import CheckpointSource

ROUNDS = 9


@dataclass(frozen=True, slots=True)
class ProductRow:
    """One way: median time of all products of a token, and its worst error against float64."""

    name: str
    ms_per_token: float
    error_ratio: float
    is_stable: bool

    def cells(self) -> tuple[str, str, str, str]:
        """The row as text."""
        stable = "yes" if self.is_stable else "no"
        return self.name, f"{self.ms_per_token:.1f}", f"{self.error_ratio:.1e}", stable


def measure_products(checkpoint: CheckpointSource, *, rounds: int = ROUNDS) -> list[ProductRow]:
    """Every way in turn, `rounds` times over, on the weights of one token.

    A token's products touch every weight once, so that each comes from memory and not from cache.
    """
    weights = _weights(checkpoint)
    ways = {name: [(way, weight) for weight in weights] for name, way in WAYS.items()}
    ways["best, " + linear.product_name()] = [(linear.best_product()[1], w) for w in weights]
    ways["int8pack by group, repacked"] = [(PackedProduct(w), w) for w in weights]
    inputs = {w.shape[1]: torch.randn(1, w.shape[1]) for w in weights}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, calls in ways.items():
            start = perf_counter_ns()
            for way, weight in calls:
                way(inputs[weight.shape[1]], weight)
            times[name].append((perf_counter_ns() - start) / 1e6)
    return [
        ProductRow(name, statistics.median(times[name]), *_judge(*calls[0], inputs))
        for name, calls in ways.items()
    ]


class PackedProduct:
    """`torch._weight_int8pack_mm` a group at a time in bfloat16, where it is fast.

    It wants each group's columns contiguous, which is not the layout of a slab: the repacking is
    left out of the time.
    """

    def __init__(self, weight: Q8Weight) -> None:
        rows, columns = weight.shape
        self._q = weight.q.view(rows, columns // GROUP, GROUP).transpose(0, 1).contiguous()
        self._scale = weight.scale.to(torch.bfloat16).T.contiguous()

    def __call__(self, x: torch.Tensor, weight: Q8Weight) -> torch.Tensor:
        parts = x.to(torch.bfloat16).view(x.shape[0], -1, GROUP).transpose(0, 1).contiguous()
        out = torch.zeros(x.shape[0], weight.shape[0])
        for part, q, scale in zip(parts, self._q, self._scale, strict=True):
            out += torch._weight_int8pack_mm(part, q, scale)
        return out


WAYS: dict[str, linear.Product] = {
    "dequantize to float32": linear.dequantize_float32,
    "dequantize to bfloat16": linear.dequantize_bfloat16,
    "dequantize blocks of rows": linear.dequantize_blocks,
}


def _weights(checkpoint: CheckpointSource) -> list[Q8Weight]:
    layers = checkpoint.config.layers
    slabs = [checkpoint.layer_layout.weights(checkpoint.slab(layer)) for layer in range(layers)]
    head = checkpoint.head_layout.weights(checkpoint.slab(layers))
    return [weight for slab in (*slabs, head) for weight in slab.values()]


def _judge(
    way: linear.Product, weight: Q8Weight, inputs: dict[int, torch.Tensor]
) -> tuple[float, bool]:
    """The largest error over the largest value, and whether ten calls give the same bits."""
    x = inputs[weight.shape[1]]
    exact = x.double() @ weight.dequantize(torch.float64).T
    found = way(x, weight)
    is_stable = all(torch.equal(way(x, weight), found) for _ in range(10))
    return float((found - exact).abs().max() / exact.abs().max()), is_stable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The script's options."""
    parser.add_argument("--model", help="whose weights (default: SmolLM2-135M-Instruct)")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    with ProgressBars() as bars:
        rows = measure_products(open_model(args.model, bars.update))
    head = ("product", "ms a token", "error", "bit-stable")
    print_table([head, *(row.cells() for row in rows)])
    return 0


if __name__ == "__main__":
    sys.exit(run_script(__doc__, add_arguments, run))
