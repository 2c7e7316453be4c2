"""Decode a small model through a small window, and show the recording."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from memscope.cli import decode
from memscope.cli.output_path import new_folder, output_folder
from memscope.cli.recordings import read_summary
from memscope.cli.report import write_report
from memscope.cli.text.verdicts import verdict_lines
from memscope.text import clean

PROMPT = "The capital of France is"
KEEP = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument(
        "--model", help="the model, as for `memscope decode` (default: SmolLM2-135M-Instruct)"
    )


def run(args: argparse.Namespace) -> int:
    """Decode, judge, write the report, and print where everything is."""
    options = [PROMPT, "--keep", str(KEEP), *(["--model", args.model] if args.model else [])]
    parser = argparse.ArgumentParser()
    decode.add_arguments(parser)
    folder = new_folder(output_folder() / "memscope-demo")
    recording, report = folder / "run.mscope", folder / "report.html"
    try:
        decoded = decode.decode_recorded(parser.parse_args(options), recording)
    except BaseException:
        _remove_if_empty(folder)
        raise
    write_report(recording, report)
    summary = read_summary(str(recording))
    print(clean(PROMPT + decoded.text), end="\n\n")
    print("\n".join(["limits", *verdict_lines(summary.verdicts)]))
    print("\n".join(_where(recording, report)))
    return 0


def _where(recording: Path, report: Path) -> list[str]:
    return [
        "",
        f"recording  {recording}",
        f"report     {report}",
        "",
        "next steps:",
        f"  memscope summary {recording}",
        f"  memscope live {recording}",
        f"  memscope check {recording} --limit 'driver.calls_per_step == 0'",
    ]


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        print(f"memscope: the recording so far is in {folder}", file=sys.stderr)
