"""`memscope live`: follow a run while it grows, in the terminal."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from memscope.cli.needs import needing
from memscope.cli.opening import add_warmup
from memscope.errors import MemscopeError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument(
        "recording",
        nargs="?",
        metavar="RECORDING",
        help="the file to follow, which need not exist yet; a folder or a glob of a run's; "
        "without it, this machine now",
    )
    add_warmup(parser)


def run(args: argparse.Namespace) -> int:
    """Show the live view until it is left."""
    if args.recording is None:
        from memscope.cli.text.machine import follow_machine

        return follow_machine()
    path = Path(args.recording)
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise MemscopeError(
            "live needs a terminal to draw in.", f"Use `memscope summary {path}` here."
        )
    with needing("dashboards", "textual"):
        from memscope_dashboards.tui.app import follow

    check_recording(path)
    return follow(path, warmup_steps=args.warm_up)


def check_recording(path: Path) -> None:
    """Raises MemscopeError where something other than a recording lies at ``path`` already."""
    from memscope.reader.scanner import Scanner

    if not path.parent.is_dir():
        raise MemscopeError(f"There is no folder {path.parent}.", "Check the path.")
    try:
        if path.exists() and not path.is_dir():
            Scanner(path).close()
    except FileNotFoundError:
        pass  # empty so far, or just removed
