"""`memscope bench`: measurements that anyone can repeat."""

from __future__ import annotations

import argparse
import json
import sys

from memscope.cli.needs import needing
from memscope.cli.progress import ProgressBars
from memscope.errors import MemscopeError

RUNNER_PACKAGES = ("torch", "safetensors", "tokenizers", "gguf", "rich", "transformers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    benches = parser.add_subparsers(dest="bench", required=True, metavar="BENCH")
    overhead = benches.add_parser("recorder-overhead", help="what recording costs")
    add = overhead.add_argument
    add("--model", help="model to decode with (default: SmolLM2-135M-Instruct)")
    add("--pairs", type=int, default=200, help="pairs of 16 tokens, recorded and not (200)")
    add("--keep", type=int, default=4, help="residency window of the decoder (4)")
    add("--peer", action="store_true", help="ms a token beside transformers in float32, too")
    add("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    if args.pairs < 1:
        raise MemscopeError(f"--pairs {args.pairs} measures nothing.", "Ask for at least 1.")
    with needing("runner", *RUNNER_PACKAGES):
        from memscope_runners.bench.recorder_overhead import measure
        from memscope_runners.q8.fetch import open_model
        from memscope_runners.settings import Settings

    with ProgressBars() as bars:
        checkpoint = open_model(args.model, bars.update)
        settings = Settings("past", args.keep)
        overhead = measure(checkpoint, settings, pairs=args.pairs, progress=bars.update)
        rows, result = overhead.rows(), overhead.to_json()
        if args.peer:
            with needing("dev", "transformers"):
                from memscope_runners.bench.transformers_peer import measure_peer
            peer = measure_peer(checkpoint, progress=bars.update)
            rows += peer.rows()
            result["peer"] = peer.to_json()
    if args.json:
        print(json.dumps(result))
        return 0
    for what, figure, bound in rows:
        print(f"{what:<48}  {figure:<44}  {bound}".rstrip())
    print(f"{checkpoint.name}, {overhead.threads} threads, on the host", file=sys.stderr)
    return 0
