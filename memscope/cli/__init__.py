"""The command line: one file a verb, imported when the verb runs."""

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
    PermissionError: "See that you may read it, or that you may write there.",
    FileNotFoundError: "See that the path is right.",
}
_LOOK = "See that the disk has room and can be read."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the verb that ``argv`` names; the exit code."""
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
        print(f"memscope: {what} {_NEXT_STEPS.get(type(error), _LOOK)}", file=sys.stderr)
        return 2


def _abandon_output() -> None:
    """Nobody can take what is left to write, so that the exit must not try."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """Wrong use is one sentence and the next step, as everywhere; so is an empty text.

    It is what a variable leaves that is not set: `--junit "$OUT"`.
    """

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if value == "":
            raise argparse.ArgumentError(action, "an empty text is no value")
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
        "usage: memscope VERB ...\n\n"
        "Where every byte of GPU memory is, why it ran out, and which setting would have avoided "
        f"it.\n\n{verbs}\n\n"
        "`memscope VERB --help` tells more; `memscope --version` which memscope this is.\n"
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
    return f"Did you mean {close[0]}?" if close else "`memscope --help` lists them."


def _survive_closed_streams() -> None:
    """What is printed to a stream that the shell closed goes nowhere; no file takes its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as we run


def _survive_narrow_encodings() -> None:
    """A terminal that cannot show a character gets a question mark, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
