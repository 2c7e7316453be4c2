"""What the README, CONTRIBUTING and the pages in docs/ tell to type can be typed."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from memscope.analysis.limits.limits import parse_limit
from memscope.cli.verbs import VERBS
from memscope.pytest_plugin import options
from tests.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLDERS = "memscope|runners|dashboards|tests|docs|examples"
OURS = ("memscope", "memscope_runners", "memscope_dashboards")
LIMIT = re.compile(r"\b[a-z_]+\.[a-z_.]+ (?:<=|>=|==|<|>) -?[\d.]+ ?[A-Za-z%]*")


def every_page(values: str = "path") -> pytest.MarkDecorator:
    return pytest.mark.parametrize(values, PAGES, ids=lambda path: path.name)


def blocks(path: Path, language: str) -> list[str]:
    text = path.read_text(encoding="utf-8")
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.S | re.M)
    return found


def commands(path: Path) -> Iterator[list[str]]:
    """The words of each command after a prompt, those of a pipe apart."""
    for block in blocks(path, "console"):
        for line in re.findall(r"^\$ (.*)$", block.replace("\\\n", " "), flags=re.M):
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split, lexer.commenters = True, "#"
            words: list[str] = []
            for word in lexer:
                if word in ("|", "&&", ";"):
                    yield without_variables(words)
                    words = []
                else:
                    words.append(word)
            yield without_variables(words)


def without_variables(words: list[str]) -> list[str]:
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    return words


def parse_verb(words: list[str]) -> None:
    """Raises SystemExit if the verb has no such option."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    import_module(VERBS[words[1]].module).add_arguments(parser)
    ends = [words.index(word) for word in ("--", "-m") if word in words]  # another's command
    parser.parse_args(words[2 : min(ends, default=None)])


def pytest_options() -> set[str]:
    parser = pytest.Parser(_ispytest=True)
    options.add_options(parser)
    return {name for group in parser._groups for each in group.options for name in each.names()}


def make_targets() -> set[str]:
    (line,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.M)
    return set(line.split())


@every_page()
def test_every_command_is_understood(path: Path) -> None:
    for words in commands(path):
        if words[0] == "memscope":
            parse_verb(words)
        elif words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= make_targets(), words
        elif words[0] == "pytest":
            named = {word.partition("=")[0] for word in words if word.startswith("--memscope")}
            assert named <= pytest_options(), words


@every_page()
def test_python_is_python_and_names_what_there_is(path: Path) -> None:
    for block in blocks(path, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(OURS):
                module = import_module(node.module or "")
                assert [name.name for name in node.names if not hasattr(module, name.name)] == []
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "memscope":
                assert hasattr(import_module("memscope"), node.attr), node.attr


@every_page()
def test_toml_is_toml(path: Path) -> None:
    for block in blocks(path, "toml"):
        tomllib.loads(block)


@every_page()
def test_limits_can_be_judged(path: Path) -> None:
    for text in LIMIT.findall(path.read_text(encoding="utf-8")):
        if not text.startswith("diff."):  # its metrics are those that two files have
            parse_limit(text)


@every_page()
def test_files_in_backquotes_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", text))
    placeholders = {name for name in named if re.search(r"\b[A-Z]{4,}\b", name)}
    missing = [name for name in named - placeholders if not (ROOT / name).exists()]
    assert missing == []


def test_examples_are_found() -> None:
    words = [each for path in PAGES for each in commands(path)]
    assert ["memscope", "explain", "examples/oom.log"] in words
    assert ["make", "setup"] in words
    assert any(blocks(path, "python") for path in PAGES)
    assert LIMIT.search('"memory.peak_bytes <= 2 GiB"')
