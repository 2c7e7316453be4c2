"""The command line. Each verb is one file, imported when the verb runs."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from memscope.cli.verbs import VERBS
from memscope.errors import MemscopeError
from memscope.text import clean

_NEXT_STEPS = {
    PermissionError: "Check the permissions of the file and its folder.",
    FileNotFoundError: "Check the path.",
}
_CHECK_DISK = "Check that the disk has space and can be read."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the verb that ``argv`` names. Returns the exit code."""
    _survive_closed_streams()
    _survive_narrow_encodings()
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except MemscopeError as error:
        print(f"memscope: {clean(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _abandon_output()
        return 141
    except OSError as error:
        _abandon_output()
        reason = error.strerror or type(error).__name__
        what = f"{clean(error.filename or 'the output')}: {reason}."
        print(f"memscope: {what} {_NEXT_STEPS.get(type(error), _CHECK_DISK)}", file=sys.stderr)
        return 2


def _abandon_output() -> None:
    """Point stdout at nothing: nobody reads it, and the flush at exit must not fail."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """Reports wrong use in one sentence with a next step, like every other error.

    Refuses empty values too: `--junit "$OUT"` gives one if the variable is not set.
    """

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if value == "":
            raise argparse.ArgumentError(action, "the value is empty")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        raise MemscopeError(f"{message[:1].upper()}{message[1:]}.", f"See `{self.prog} --help`.")


def _run(argv: list[str]) -> int:
    word = argv[0] if argv else "--help"
    if word in ("-h", "--help", "help"):
        print(_help())
        return 0 if argv else 2
    if word in ("-V", "--version"):
        print(_version())
        return 0
    verb = VERBS.get(word)
    if verb is None:
        raise MemscopeError(f"There is no verb {word!r}.", _near(word))
    module = import_module(verb.module)
    parser = _Parser(prog=f"memscope {word}", description=module.__doc__, allow_abbrev=False)
    module.add_arguments(parser)
    parse = getattr(module, "parse_arguments", _parse)
    code: int = module.run(parse(parser, argv[1:]))
    return code


def _parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    return parser.parse_args(words)


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:{width}}  {verb.help}" for name, verb in VERBS.items())
    return (
        "usage: memscope VERB [options]\n\n"
        "Shows where GPU memory is, why it ran out, and which setting would have avoided that.\n\n"
        f"{verbs}\n\n"
        "`memscope VERB --help` shows the options of a verb. `memscope --version` shows the\n"
        "version and where it is installed.\n\n"
        "Sizes are written like 512MiB, 2GiB, 1G or 60M (all 1024-based), or 8GB (1000-based).\n"
        "Exit codes: 0 fine, 1 a limit is broken, 2 wrong use, 3 the recording is partial,\n"
        "4 out of memory."
    )


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("memscope-torch")
    except PackageNotFoundError:
        number = "(not installed)"
    return f"memscope-torch {number} ({os.path.dirname(os.path.dirname(__file__))})"


def _near(word: str) -> str:
    close = difflib.get_close_matches(word, VERBS, n=1)
    return f"Did you mean {close[0]}?" if close else "`memscope --help` lists all verbs."


def _survive_closed_streams() -> None:
    """Replace streams that the shell closed, so that no other file gets their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as we run


def _survive_narrow_encodings() -> None:
    """Print a question mark for a character that the terminal cannot show."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
