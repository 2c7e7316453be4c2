"""An explanation as plain text: a paragraph, the GPU's memory as a bar, then advice."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memscope.cli.text.columns import align
from memscope.text import clean
from memscope.units import torch_size

if TYPE_CHECKING:
    from memscope.analysis.diagnosis.explanation import Advice, Explanation, Failure, Share

WIDTH = 96
BAR_CHARACTERS = 64
SETTING_CHARACTERS = 56
FAILURES = 32


def explanation_lines(explanation: Explanation) -> list[str]:
    """The lines of the explanation, without control characters."""
    if explanation.diagnosis is None:
        lines = [clean(text) for text in (explanation.why, *explanation.notes)]
    else:
        paragraph = " ".join((explanation.why, *explanation.notes))
        lines = textwrap.wrap(clean(paragraph), WIDTH, break_on_hyphens=False)
    if explanation.shares:
        lines += ["", *_card(explanation)]
    lines += _failures(explanation.failures)
    lines += _advice("would help (and what it frees)", explanation.help, has_bytes=True)
    lines += _advice("would not help", explanation.no_help)
    if explanation.unknown:
        lines += ["", "not known", *(f"  {clean(text)}" for text in explanation.unknown)]
    more = explanation.lines()
    if more:
        lines += ["", *(_keep_shape(line) for line in more)]
    return lines


def _keep_shape(line: str) -> str:
    """``line`` without control characters. Spaces stay: it may be part of a picture."""
    return "".join(c if c.isprintable() else "\ufffd" for c in line)


def _card(explanation: Explanation) -> list[str]:
    total = explanation.bar_bytes
    card = explanation.sizes_bytes.get("total")
    name = clean(explanation.device_name, 60) or "card"
    title = f"{name}  {torch_size(total)}"
    if card is not None and total > card + (card >> 10):
        title = f"{name}  {torch_size(card)}, and {torch_size(total)} is in use"
    rows = [
        (
            share.glyph,
            clean(share.name, 60),
            torch_size(share.bytes).rjust(12),
            f"{share.bytes / total:.1%}".rjust(6),
        )
        for share in explanation.shares
    ]
    return [title, f"  [{bar(explanation.shares)}]", *align(rows)]


def bar(shares: Sequence[Share], characters: int = BAR_CHARACTERS) -> str:
    """``shares`` as a bar of ``characters``. Each share gets at least one character."""
    total = sum(share.bytes for share in shares)
    if not total:
        return ""
    exact = [share.bytes * characters / total for share in shares]
    lengths = [max(int(length), 1) for length in exact]
    while sum(lengths) != characters:
        step = 1 if sum(lengths) < characters else -1
        place = max(range(len(exact)), key=lambda i: step * (exact[i] - lengths[i]))
        lengths[place] += step
    return "".join(share.glyph * length for share, length in zip(shares, lengths, strict=True))


def _failures(failures: Sequence[Failure]) -> list[str]:
    if len(failures) < 2:
        return []
    rows = [
        (
            clean(each.process, 60) or "-",
            clean(each.device_name, 60) or "-",
            _metric(each, "requested", "asked"),
            _metric(each, "free", "free"),
            clean(each.diagnosis.words),
            f"line {each.line:,}",
        )
        for each in failures[:FAILURES]
    ]
    lines = ["", "all failures, the one above first", *align(rows)]
    rest = Counter(each.diagnosis.words for each in failures[FAILURES:])
    if rest:
        kinds = ", ".join(f"{count:,} {clean(name)}" for name, count in rest.most_common())
        lines.append(f"  and {rest.total():,} more ({kinds}); --json has them all")
    return lines


def _metric(failure: Failure, name: str, word: str) -> str:
    count = failure.sizes_bytes.get(name)
    return "-" if count is None else f"{torch_size(count)} {word}"


def _advice(title: str, advice: Sequence[Advice], *, has_bytes: bool = False) -> list[str]:
    if not advice:
        return []
    rows = []
    for each in advice:
        setting, reason = clean(each.setting, 160), clean(each.reason, 200)
        size = (_size(each),) if has_bytes else ()
        if len(setting) > SETTING_CHARACTERS:
            rows.append((setting, *("" for _ in size), ""))
            setting = ""
        rows.append((setting, *size, reason))
    return ["", title, *_columns(rows)]


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Aligned rows. A row with a wide first cell gets a line of its own."""
    wide = {i for i, row in enumerate(rows) if len(row[0]) > SETTING_CHARACTERS}
    lines = iter(align(row for i, row in enumerate(rows) if i not in wide))
    return [f"  {rows[i][0]}" if i in wide else next(lines) for i in range(len(rows))]


def _size(advice: Advice) -> str:
    return "-" if advice.frees_bytes is None else torch_size(advice.frees_bytes)
