"""`memscope run`: any program of PyTorch, recorded in its own interpreter, with its children."""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from memscope.atomic_file import check_free
from memscope.cli.output import default_path
from memscope.errors import MemscopeError
from memscope.recorder.retention import KEEP_LAST_HELP
from memscope.text import clean

WITH_VALUE = ("-o", "--output", "--report", "--keep-last", "--history")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options; the first word that is none of them begins the command."""
    add = parser.add_argument
    parser.usage = "memscope run [options] [--] COMMAND ...   (script.py, -m MODULE, -c CODE, ...)"
    add("-o", "--output", metavar="RECORDING", help="where the recording goes")
    add("--force", action="store_true", help="overwrite the recording, and the report")
    add("--report", metavar="FILE", help="write the HTML report once the program has ended")
    add("--keep-last", metavar="SIZE", help=KEEP_LAST_HELP)
    add(
        "--history",
        type=int,
        metavar="N",
        help="keep who allocated what, and torch's last N events (about 2 µs an allocation)",
    )
    add("--live", action="store_true", help="show the live view; its output follows when you leave")
    add("--cupti", action="store_true", help="name libraries' own allocations, by NVIDIA's CUPTI")
    add("command", metavar="COMMAND", nargs="*", help="what to run, with its own arguments")


def parse_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Ours up to the command; what follows is the program's, untouched."""
    start = command_start(words)
    args = parser.parse_args(list(words[:start]))
    args.command = list(words[start:])
    return args


def command_start(words: Sequence[str]) -> int:
    """Where the command begins: at the first word that is no option of ours."""
    position = 0
    while position < len(words):
        word = words[position]
        if word in ("-m", "-c", "--") or not word.startswith("-") or word == "-":
            break
        position += 2 if word in WITH_VALUE else 1
    return min(position, len(words))


def run(args: argparse.Namespace) -> int:
    """Run the program; its own exit code, 128 + n where signal n ended it."""
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
        from memscope.cli.run_live import run_under_view

        code = run_under_view(command, environment, path)
    else:
        code = run_program(command, environment)
    finish(path, report, force=args.force)
    return code


def find_obstacle(command: Sequence[str]) -> str | None:
    """Why nothing of ``command`` can be recorded, where that is known before it runs."""
    from memscope.launch.environment import OFF
    from memscope.launch.program import missing_script

    if os.environ.get(OFF):
        return f"{OFF} is set. Unset it to record."
    script = missing_script(command)
    return None if script is None else f"there is no file {clean(script)}."


def run_unrecorded(command: Sequence[str], obstacle: str) -> int:
    """Run the program alone: of a missing script it is Python that says so, and no recording of
    that is left behind."""
    from memscope.launch.environment import OFF
    from memscope.launch.program import run_program

    code = run_program(command, {**os.environ, OFF: "1"})
    note(f"nothing was recorded: {obstacle}")
    return code


def check_output(path: Path, report: Path | None, *, force: bool) -> None:
    """Raises MemscopeError, before the program starts, where its output cannot be written."""
    from memscope.recorder.output_file import check_writable

    check_writable(path, force=force)
    if report is not None:
        check_free(report, force=force)


def remove_old(path: Path) -> None:
    """A recording that may be overwritten, with its older segments."""
    if path.exists():
        from memscope.reader.chain import remove_recording

        remove_recording(path)


def recorded_environment(path: Path) -> dict[str, str]:
    """The environment of a program whose first process is recorded at ``path``."""
    from memscope.launch.environment import program_environment
    from memscope.launch.program import hook_folder

    return program_environment(os.environ, path.absolute(), uuid.uuid4().hex, hook_folder())


def option_variables(args: argparse.Namespace) -> dict[str, str]:
    """What the options say to every process of the run. Raises MemscopeError."""
    from memscope.launch import environment as names
    from memscope.recorder.retention import parse_keep_last

    variables = prepare_cupti() if args.cupti else {}
    if args.keep_last is not None:
        parse_keep_last(args.keep_last)
        variables[names.KEEP_LAST] = args.keep_last
    if args.history is not None:
        if args.history < 1:
            raise MemscopeError(f"--history {args.history} keeps nothing.", "Write 1 or more.")
        variables[names.HISTORY] = str(args.history)
    return variables


def prepare_cupti() -> dict[str, str]:
    """What asks the program's processes for CUPTI; its native part is compiled here, once."""
    from memscope.launch import environment as names
    from memscope.probes.cupti.buffers import CuptiAbsent, build

    try:
        build()
    except CuptiAbsent as error:
        note(f"no CUPTI: {error.problem.reason}. {error.problem.fix}")
    return {names.CUPTI: "1"}


def finish(path: Path, report: Path | None, *, force: bool) -> None:
    """Say where the recording is, and write the report. What fails here changes no exit code."""
    if not path.exists():
        note(
            "nothing was recorded. Unless a line above says why, no Python that has memscope ran: "
            "install memscope-torch there."
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
    """One line on stderr."""
    print(f"{prefix}{text}", file=sys.stderr)
