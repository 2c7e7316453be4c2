"""An empty text, which a variable leaves that is not set, is never taken for no option at all."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from memscope.cli import main
from memscope.cli.verbs import VERBS
from tests.memscope.cli.verb_run import Run


def options() -> Iterator[tuple[str, ...]]:
    """Each option of each verb that takes a value, as it is typed."""
    for word, verb in VERBS.items():
        parser = argparse.ArgumentParser()
        import_module(verb.module).add_arguments(parser)
        yield from ((word, *words) for words in options_of(parser))


def options_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, ...]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from ((name, *words) for words in options_of(below))
        elif action.nargs != 0:
            yield from ((name,) for name in action.option_strings if not name.startswith("--no-"))


OPTIONS = sorted(options())


def test_options_are_found() -> None:
    assert {("check", "--junit"), ("run", "-o"), ("bench", "cost-curve", "--output")} < {*OPTIONS}
    assert len(OPTIONS) > 40


@pytest.mark.parametrize("words", OPTIONS, ids=" ".join)
def test_option_without_a_text_is_wrong_use(memscope: Run, words: tuple[str, ...]) -> None:
    for typed in ([*words, ""], [*words[:-1], f"{words[-1]}="]):
        if typed[-1].startswith("-o"):
            continue  # the shell has no empty text to put behind a short option
        found = memscope(*typed)
        assert (found.code, found.out) == (2, ""), typed
        assert found.err.startswith("memscope: ")
        assert found.err.count("\n") == 1
        assert words[-1] in found.err
        assert "--help`" in found.err or "Write" in found.err


@pytest.mark.parametrize(
    "words",
    [
        ["check", "{whole}", "--junit", ""],
        ["check", "{whole}", "--write-baseline", ""],
        ["check", "{whole}", "--baseline", ""],
        ["report", "{whole}", "-o", ""],
        ["export", "{whole}", "--to", "arrow", "-o", ""],
        ["run", "-o", "", "-c", "print('started')"],
        ["run", "--report", "", "-c", "print('started')"],
    ],
    ids=lambda words: " ".join(words[:1] + words[-2:]),
)
def test_nothing_is_begun(memscope: Run, whole: Path, words: list[str]) -> None:
    files = sorted(whole.parent.iterdir())
    found = memscope(*(word.format(whole=whole) for word in words))
    assert (found.code, found.out) == (2, "")
    assert sorted(whole.parent.iterdir()) == files


@pytest.mark.parametrize("verb", ["summary", "check", "report", "live", "explain", "diff"])
def test_a_recording_has_a_name(memscope: Run, verb: str) -> None:
    found = memscope(verb, "", *([""] if verb == "diff" else []))
    assert (found.code, found.out) == (2, "")
    assert "empty" in found.err


def test_words_of_a_program_may_be_empty(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["-c", "import sys; print(sys.argv)", "", "--report", ""]
    assert main(["run", "-o", str(tmp_path / "run.mscope"), *words]) == 0
    assert "['-c', '', '--report', '']" in capfd.readouterr().out
