"""Run a PyTorch program and record it, with its child processes."""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from memscope.atomic_file import check_free
from memscope.cli.output_path import default_path
from memscope.errors import MemscopeError
from memscope.recorder.retention import KEEP_LAST_HELP
from memscope.text import clean

WITH_VALUE = ("-o", "--output", "--report", "--keep-last", "--history")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options. The first word that is not an option begins the command."""
    add = parser.add_argument
    parser.usage = "memscope run [options] [--] COMMAND ...   (script.py, -m MODULE, -c CODE, ...)"
    add("-o", "--output", metavar="RECORDING", help="the recording to write")
    add("--force", action="store_true", help="overwrite the recording and the report")
    add("--report", metavar="FILE", help="write an HTML report when the program has ended")
    add("--keep-last", metavar="SIZE", help=KEEP_LAST_HELP)
    add(
        "--history",
        type=int,
        metavar="N",
        help="record the call stack of each allocation, and torch's last N allocator events (costs "
        "about 2 µs for each allocation)",
    )
    add(
        "--live",
        action="store_true",
        help="show the live view; the program's output appears when you leave it",
    )
    add("--cupti", action="store_true", help="name allocations of libraries, with NVIDIA's CUPTI")
    add("command", metavar="COMMAND", nargs="*", help="the program to run, with its arguments")


def parse_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Parse our options. What follows the first word of the command belongs to the program."""
    start = command_start(words)
    args = parser.parse_args(list(words[:start]))
    args.command = list(words[start:])
    return args


def command_start(words: Sequence[str]) -> int:
    """The index of the first word that is not one of our options."""
    position = 0
    while position < len(words):
        word = words[position]
        if word in ("-m", "-c", "--") or not word.startswith("-") or word == "-":
            break
        position += 2 if word in WITH_VALUE else 1
    return min(position, len(words))


def run(args: argparse.Namespace) -> int:
    """Run the program. Returns its exit code, or 128 + n if signal n ended it."""
    from memscope.launch.program import command_words, run_program

    command = command_words(args.command)
    path = Path(args.output) if args.output else default_path("run", ".mscope")
    report = Path(args.report) if args.report else None
    options = option_variables(args)
    check_output(path, report, force=args.force)
    obstacle = find_obstacle(command)
    if obstacle is not None:
        return run_unrecorded(command, obstacle)
    if args.force:
        remove_old(path)
    environment = recorded_environment(path) | options
    if args.live:
        from memscope.cli.run_under_view import run_under_view

        code = run_under_view(command, environment, path)
    else:
        code = run_program(command, environment)
    finish(path, report, force=args.force)
    return code


def find_obstacle(command: Sequence[str]) -> str | None:
    """Why ``command`` cannot be recorded, if that is known before it runs."""
    from memscope.launch.environment import OFF
    from memscope.launch.program import missing_script

    if os.environ.get(OFF):
        return f"{OFF} is set. Unset it to record."
    script = missing_script(command)
    return None if script is None else f"the file {clean(script)} does not exist."


def run_unrecorded(command: Sequence[str], obstacle: str) -> int:
    """Run the program without recording it. Python itself reports a missing script."""
    from memscope.launch.environment import OFF
    from memscope.launch.program import run_program

    code = run_program(command, {**os.environ, OFF: "1"})
    note(f"nothing was recorded: {obstacle}")
    return code


def check_output(path: Path, report: Path | None, *, force: bool) -> None:
    """Raises MemscopeError if the recording or the report cannot be written."""
    from memscope.recorder.output_file import check_writable

    check_writable(path, force=force)
    if report is not None:
        check_free(report, force=force)


def remove_old(path: Path) -> None:
    """Remove the recording at ``path`` and its older segments."""
    if path.exists():
        from memscope.reader.chain import remove_recording

        remove_recording(path)


def recorded_environment(path: Path) -> dict[str, str]:
    """The environment for a program whose first process is recorded at ``path``."""
    from memscope.launch.environment import program_environment
    from memscope.launch.program import hook_folder

    return program_environment(os.environ, path.absolute(), uuid.uuid4().hex, hook_folder())


def option_variables(args: argparse.Namespace) -> dict[str, str]:
    """Environment variables that pass the options to the processes. Raises MemscopeError."""
    from memscope.launch import environment as names
    from memscope.recorder.retention import parse_keep_last

    variables = prepare_cupti() if args.cupti else {}
    if args.keep_last is not None:
        parse_keep_last(args.keep_last)
        variables[names.KEEP_LAST] = args.keep_last
    if args.history is not None:
        if args.history < 1:
            raise MemscopeError(f"--history {args.history} records nothing.", "Write 1 or more.")
        variables[names.HISTORY] = str(args.history)
    return variables


def prepare_cupti() -> dict[str, str]:
    """Compile the native part of CUPTI, and return the variable that turns it on."""
    from memscope.launch import environment as names
    from memscope.probes.cupti.buffers import CuptiAbsent, build

    try:
        build()
    except CuptiAbsent as error:
        note(f"no CUPTI: {error.problem.reason}. {error.problem.fix}")
    return {names.CUPTI: "1"}


def finish(path: Path, report: Path | None, *, force: bool) -> None:
    """Print where the recording is, and write the report. Errors do not change the exit code."""
    if not path.exists():
        note(
            "nothing was recorded. If no line above says why, the program's Python does not have "
            "memscope: install memscope-torch there."
        )
        return
    note(f"recording: {path}  (memscope summary {path})", prefix="")
    if report is None:
        return
    from memscope.cli.report import write_report

    try:
        write_report(path, report, force=force)
        note(f"report: {report}", prefix="")
    except MemscopeError as error:
        note(f"no report: {error}")


def note(text: str, prefix: str = "memscope: ") -> None:
    """Print one line on stderr."""
    print(f"{prefix}{text}", file=sys.stderr)
