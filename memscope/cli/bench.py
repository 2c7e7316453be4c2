"""Measure what recording and windows cost on this machine.

The scripts in benchmarks/ of the repository measure more: allocators, watching, products, peers.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from memscope.atomic_file import atomic_write, check_free
from memscope.cli.progress import ProgressBars
from memscope.cli.requirements import require
from memscope.errors import MemscopeError
from memscope.text import clean

RUNNER_PACKAGES = ("torch", "safetensors", "tokenizers", "gguf", "rich", "transformers")
WINDOW_MODEL = "synthetic:qwen3-vl-2b"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    benches = parser.add_subparsers(dest="bench", required=True, metavar="BENCH")
    _add_overhead(benches.add_parser("recorder-overhead", help="cost of recording"))
    curve = benches.add_parser("cost-curve", help="time per token against memory, for every policy")
    add_window_options(curve)
    curve.add_argument(
        "--settings",
        nargs="+",
        metavar="SETTING",
        help="settings like off past:20 past:20:ahead (default: seven for past, and every policy)",
    )
    tests = benches.add_parser("pytest-overhead", help="cost of the pytest plugin")
    tests.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="number of times each run is timed (5)"
    )
    tests.add_argument("--json", action="store_true", help="print the metrics as JSON")


def _add_overhead(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", help="model to decode with (default: SmolLM2-135M-Instruct)")
    add(
        "--pairs",
        type=int,
        default=200,
        help="number of pairs, which alternate every 16 tokens (200)",
    )
    add("--policy", help="residency policy of the decoder (default: past, with --keep 4)")
    add("--keep", type=int, help="number of layers that the decoder keeps on the device")
    add("--device", default="host", help="cuda, cuda:1 or host (default: host)")
    add("--json", action="store_true", help="print the metrics as JSON")


def add_window_options(parser: argparse.ArgumentParser, *, takes_model: bool = True) -> None:
    """Options of a measurement that decodes."""
    add = parser.add_argument
    if takes_model:
        add("--model", default=WINDOW_MODEL, help=f"model to decode with (default: {WINDOW_MODEL})")
    add("--device", default=None, help="cuda, cuda:1 or host (default: the best one available)")
    add("--tokens", type=int, default=64, metavar="N", help="number of tokens in each run (64)")
    add(
        "--rounds",
        type=int,
        default=3,
        metavar="N",
        help="number of timed runs for each setting (3)",
    )
    add("-o", "--output", metavar="FILE.json", help="also write the metrics to this file")
    add("--force", action="store_true", help="overwrite the file if it exists")
    add("--json", action="store_true", help="print the metrics as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the benchmark and print its result."""
    return {
        "recorder-overhead": run_overhead,
        "cost-curve": run_cost_curve,
        "pytest-overhead": run_pytest_overhead,
    }[args.bench](args)


def run_overhead(args: argparse.Namespace) -> int:
    """Measure the cost of an event, a guard, a byte and a decoded token."""
    if args.pairs < 1:
        raise MemscopeError(f"--pairs {args.pairs} measures nothing.", "Ask for at least 1.")
    with require("runner", *RUNNER_PACKAGES):
        from memscope_runners.bench.recorder_overhead import measure
        from memscope_runners.checkpoint.fetch import open_model
        from memscope_runners.memory.choice import choose_device
        from memscope_runners.settings import Settings

    with ProgressBars() as bars:
        checkpoint = open_model(args.model, bars.update)
        policy, keep = args.policy or "past", args.keep
        if policy == "past" and keep is None:
            keep = 4
        settings = Settings(policy, keep, device=choose_device(args.device).name)
        overhead = measure(checkpoint, settings, pairs=args.pairs, progress=bars.update)
        rows, result = overhead.rows(), overhead.to_json()
    if args.json:
        print(json.dumps(result))
        return 0
    for what, metric, bound in rows:
        print(f"{what:<48}  {metric:<44}  {bound}".rstrip())
    print(f"{checkpoint.name}, {overhead.threads} threads, on {settings.device}", file=sys.stderr)
    return 0


def run_cost_curve(args: argparse.Namespace) -> int:
    """Measure the cost of smaller windows."""
    check_window_options(args)
    with require("runner", *RUNNER_PACKAGES):
        from memscope_runners.bench.cost_curve import (
            default_settings,
            measure_curve,
            parse_setting,
        )
        from memscope_runners.checkpoint.fetch import open_model

    device = named_device(args)
    with ProgressBars() as bars:
        checkpoint = open_model(args.model, bars.update)
        settings = [parse_setting(text) for text in args.settings or ()]
        curve = measure_curve(
            checkpoint,
            device,
            settings or default_settings(checkpoint.config.layers),
            tokens=args.tokens,
            rounds=args.rounds,
            progress=bars.update,
        )
    show(args, curve.to_json(), [curve.table()])
    return 0


def run_pytest_overhead(args: argparse.Namespace) -> int:
    """Time 500 trivial tests without the plugin, with it, and with a limit on each test."""
    if args.rounds < 1:
        raise MemscopeError(f"--rounds {args.rounds} measures nothing.", "Ask for at least 1.")
    with require("dev", "pytest"):
        from memscope_runners.bench.pytest_overhead import measure

    with ProgressBars() as bars:
        found = measure(rounds=args.rounds, progress=bars.update)
    if args.json:
        print(json.dumps(found.to_json()))
    else:
        print_table(found.rows())
    return 0


def check_window_options(args: argparse.Namespace) -> None:
    """Raises MemscopeError if the options measure nothing or the file cannot be written."""
    if args.tokens < 4 or args.rounds < 1:
        raise MemscopeError(
            f"--tokens {args.tokens} --rounds {args.rounds} measures nothing.",
            "Ask for at least 4 tokens and 1 round.",
        )
    if args.output:
        check_free(Path(args.output), force=args.force)


def named_device(args: argparse.Namespace) -> str:
    """The device's name. If none was named, print which one was chosen and why."""
    from memscope_runners.memory.choice import choose_device

    device = choose_device(args.device)
    if args.device is None:
        print(f"memscope: {device.reason}", file=sys.stderr)
    return device.name


def show(
    args: argparse.Namespace,
    result: dict[str, Any],
    tables: Iterable[Iterable[tuple[str, ...]]],
) -> None:
    """Print the metrics as tables or JSON, and write them to the output file."""
    if args.output:
        with atomic_write(Path(args.output), force=args.force) as unfinished:
            unfinished.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if args.json:
        print(json.dumps(result))
        return
    for number, table in enumerate(tables):
        print("\n" * bool(number), end="")
        print_table(list(table))
    if "pinned_copy_gb_per_s" not in result:  # the result does not depend on the link
        return
    rate = result["pinned_copy_gb_per_s"]
    link = f"pinned copies {rate:.1f} GB/s" if rate else result["pinned_copy_reason"]
    machine = result["machine"]
    print(
        f"{result['model']} on {machine['device']}, {machine['processor']}; {link}", file=sys.stderr
    )


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print aligned columns: the first to the left, the numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            text.ljust(width) if index < 1 else text.rjust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def run_script(
    description: str | None,
    add: Callable[[argparse.ArgumentParser], None],
    measure: Callable[[argparse.Namespace], int],
) -> int:
    """Run a script of benchmarks/ as if it were a verb; its exit code."""
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    add(parser)
    try:
        return measure(parser.parse_args())
    except MemscopeError as error:
        print(f"memscope: {clean(str(error))}", file=sys.stderr)
        return error.exit_code
