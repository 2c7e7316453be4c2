"""How each role looks. Meaning never rests on colour alone: glyphs and words carry it too."""

from __future__ import annotations

from rich.style import Style

BACKGROUND = "#11161d"
TEXT = "#d3dae3"

STYLES = {
    "": Style(),
    "text": Style(color=TEXT),
    "strong": Style(color="#f2f5f8", bold=True),
    "dim": Style(color="#8a96a5"),
    "rule": Style(color="#37424f"),
    "title": Style(color="#8fb8de", bold=True),
    "resident": Style(color="#4db6a4"),
    "in_flight": Style(color="#e6b04f"),
    "idle": Style(color="#7f8fc9"),
    "other": Style(color="#8a96a5"),
    "free": Style(color="#37424f"),
    "evicted": Style(color="#56636f"),
    "memory": Style(color="#2f8177"),
    "idle_line": Style(color="#5a67a3"),
    "host": Style(color="#626e7c"),
    "time": Style(color="#8d6b98"),
    "count": Style(color="#a37d38"),
    "pass": Style(color="#78c27d", bold=True),
    "warn": Style(color="#e6b04f", bold=True),
    "fail": Style(color="#f0736a", bold=True),
    "running": Style(color="#78c27d", bold=True),
    "complete": Style(color="#8fb8de", bold=True),
    "alarm": Style(color="#ffffff", bgcolor="#a8322b", bold=True),
    "notice": Style(color="#11161d", bgcolor="#e6b04f", bold=True),
    "key": Style(color="#f2f5f8", bold=True),
}
PLAIN = {
    role: Style(
        bold=style.bold,
        reverse=style.bgcolor is not None or None,
        dim=role in ("dim", "rule", "free", "evicted") or None,
    )
    for role, style in STYLES.items()
}


def style_of(role: str, *, has_colour: bool) -> Style:
    """The look of ``role``, with or without colour."""
    return (STYLES if has_colour else PLAIN)[role]
