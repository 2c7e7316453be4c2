"""Show a recording's metrics and broken limits, as text or JSON."""

from __future__ import annotations

import argparse
import json
import sys

from memscope.cli.recordings import AT_HELP, RECORDING_HELP, add_warmup, read_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    text = f"{RECORDING_HELP}; without RECORDING, the GPUs of this machine as they are now"
    add("recording", metavar="RECORDING", nargs="?", help=text)
    add("--at", metavar="WHEN", default="end", help=AT_HELP)
    add("--all", action="store_true", help="list metrics without a value too, with the reasons")
    add_warmup(parser)
    add("--json", action="store_true", help="print everything as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the summary. Returns 3 if a recording is partial."""
    if args.recording is None:
        from memscope.cli.text.machine import show_machine

        return show_machine(as_json=args.json)
    from memscope.cli.text.run_table import file_notes
    from memscope.cli.text.summary import run_summary_lines

    run, files = read_run(args.recording, at=args.at, warm_up=args.warm_up)
    for note in file_notes(files):
        print(f"memscope: {note}", file=sys.stderr)
    if args.json:
        print(json.dumps(run.to_json(), indent=2, allow_nan=False))
    else:
        print("\n".join(run_summary_lines(run, args.at, show_missing=args.all)))
    return 3 if run.is_partial else 0
