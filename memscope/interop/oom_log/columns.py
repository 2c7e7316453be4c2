"""Columns that tools write before each line of a log: what their readers have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from memscope.interop.oom_log.lines import without_escapes
from memscope.interop.oom_log.search import Block, Line

SAMPLE_LINES = 64
SAMPLE_CHARACTERS = 1 << 15
# Words that programs count by ("step-3", "epoch.1"): a number behind them makes no name.
COUNTED = (
    "step|epoch|iter|iteration|batch|round|phase|stage|layer|block|chunk|sample|cuda|device|version"
)


def sample_lines(block: Block) -> list[str]:
    """The first lines of ``block`` that are not empty, without escapes: to learn columns from."""
    text = block.text[block.start : block.start + SAMPLE_CHARACTERS]
    lines = text.split("\n", SAMPLE_LINES)[:SAMPLE_LINES]
    return [without_escapes(line) for line in lines if line.strip()]


def rewrite_line(line: Line, rewrite: Callable[[str], str]) -> Line:
    """``line`` and the one before it as ``rewrite`` has them, which gives back what it leaves."""
    text = rewrite(line.text)
    if text is line.text:
        return line
    begin = line.before.rstrip("\n").rfind("\n") + 1
    return replace(line, text=text, before=line.before[:begin] + rewrite(line.before[begin:]))
