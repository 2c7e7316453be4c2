"""Show what can be read on this machine, what cannot, and how to fix that."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from memscope.cli.text.columns import align
from memscope.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memscope.launch.checks import Check


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(args: argparse.Namespace) -> int:
    """Print every check. Always returns 0."""
    from memscope.launch.checks import run_checks

    checks = run_checks()
    if args.json:
        print(json.dumps([dataclasses.asdict(check) for check in checks], indent=2))
    else:
        print("\n".join(check_lines(checks)))
    return 0


def check_lines(checks: Sequence[Check]) -> list[str]:
    """One line for each check, with the fix below it."""
    rows = align((check.verdict, check.name, clean(check.found)) for check in checks)
    width = len(align((check.verdict, check.name, ".") for check in checks)[0]) - 1
    lines = []
    for check, row in zip(checks, rows, strict=True):
        lines.append(row)
        if check.fix:
            lines.append(f"{'':{width}}{check.fix}")
    return lines
