"""Settings of two recordings, side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memscope.cli.text.columns import align
from memscope.text import clean
from memscope.units import format_bytes

if TYPE_CHECKING:
    from memscope.analysis.comparison.run_settings import Plain, Setting

TITLE = "settings and environment"
MOST_ROWS = 10
MOST_NAMES = 32
LONG_CHARS = 40
MOST_CHARS = 60
LINE_CHARS = 100


def setting_lines(settings: Sequence[Setting]) -> list[str]:
    """Settings that differ, that only one recording has, that are the same, that neither has."""
    differing = [each for each in settings if each.differs]
    alike = [each for each in settings if each.differs is False]
    neither = [each for each in settings if not (each.is_in_first or each.is_in_second)]
    one_sided = [each for each in settings if each.differs is None and each not in neither]
    rows = [*differing, *one_sided]
    lines = [f"{TITLE}: {_conclusion(len(differing), len(one_sided))}"]
    if rows:
        lines += align((clean(each.name, MOST_CHARS), _change(each)) for each in rows[:MOST_ROWS])
    if len(rows) > MOST_ROWS:
        lines.append(f"  {len(rows) - MOST_ROWS:,} more in --json")
    return [*lines, *_names("same", alike), *_names("recorded in neither", neither)]


def _conclusion(differing: int, one_sided: int) -> str:
    if not differing:
        words = "no setting that both recordings have differs"
    else:
        words = f"{differing:,} differ{'s' if differing == 1 else ''}"
    return f"{words}, {one_sided:,} recorded in only one" if one_sided else words


def _change(setting: Setting) -> str:
    before, after = setting.before, setting.after
    if isinstance(before, str) and isinstance(after, str):
        values = _tell_apart(before, after)
    else:
        values = (_value(setting.name, before), _value(setting.name, after))
    if setting.differs and values[0] == values[1]:  # once rounded
        values = (f"{before}", f"{after}")
    sides = zip(values, (setting.is_in_first, setting.is_in_second), strict=True)
    return " → ".join(clean(text, MOST_CHARS) if said else "not recorded" for text, said in sides)


def _value(name: str, value: Plain) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_bytes") and 0 <= value < 1 << 62:
        return format_bytes(value)
    return str(value)


def _tell_apart(before: str, after: str) -> tuple[str, str]:
    """Both texts. Long ones start at the word before the first difference."""
    if max(len(before), len(after)) <= LONG_CHARS:
        return before, after
    pairs = enumerate(zip(before, after, strict=False))
    common = next((at for at, (old, new) in pairs if old != new), min(len(before), len(after)))
    start = before.rfind(" ", 0, max(before.rfind(" ", 0, common), 0)) + 1
    start = start or max(common - LONG_CHARS // 4, 0)
    mark = "… " if start else ""
    return f"{mark}{before[start:]}", f"{mark}{after[start:]}"


def _names(title: str, settings: Sequence[Setting]) -> list[str]:
    if not settings:
        return []
    names = [clean(each.name, MOST_CHARS) for each in settings[:MOST_NAMES]]
    more = f" and {len(settings) - MOST_NAMES:,} more" if len(settings) > MOST_NAMES else ""
    text = f"{title}: {', '.join(names)}{more}"
    return textwrap.wrap(text, LINE_CHARS, initial_indent="  ", subsequent_indent="    ")
