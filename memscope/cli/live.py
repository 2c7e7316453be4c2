"""Follow a running recording in the terminal."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from memscope.cli.recordings import add_warmup
from memscope.cli.requirements import require
from memscope.errors import MemscopeError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument(
        "recording",
        nargs="?",
        metavar="RECORDING",
        help="the recording to follow, which may not exist yet, or a folder or glob with the "
        "recordings of one run; without RECORDING, the GPUs of this machine",
    )
    add_warmup(parser)


def run(args: argparse.Namespace) -> int:
    """Show the live view until the user leaves it."""
    if args.recording is None:
        from memscope.cli.text.machine import follow_machine

        return follow_machine()
    path = Path(args.recording)
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise MemscopeError("live needs a terminal.", f"Use `memscope summary {path}` here.")
    with require("dashboards", "textual"):
        from memscope_dashboards.tui.app import follow

    check_recording(path)
    return follow(path, warmup_steps=args.warm_up)


def check_recording(path: Path) -> None:
    """Raises MemscopeError if ``path`` exists and is not a recording."""
    from memscope.reader.scanner import Scanner

    if not path.parent.is_dir():
        raise MemscopeError(f"The folder {path.parent} does not exist.", "Check the path.")
    try:
        if path.exists() and not path.is_dir():
            Scanner(path).close()
    except FileNotFoundError:
        pass  # empty so far, or just removed
