"""Roles of text and their looks. Glyphs and words always say what a colour says."""

from __future__ import annotations

from enum import StrEnum

from rich.style import Style

BACKGROUND = "#11161d"
TEXT = "#d3dae3"


class Role(StrEnum):
    """What a span of text is for. Each role has one look."""

    PLAIN = ""
    TEXT = "text"
    STRONG = "strong"
    DIM = "dim"
    RULE = "rule"
    TITLE = "title"
    RESIDENT = "resident"
    IN_FLIGHT = "in_flight"
    IDLE = "idle"
    OTHER = "other"
    FREE = "free"
    EVICTED = "evicted"
    MEMORY = "memory"
    IDLE_LINE = "idle_line"
    HOST = "host"
    TIME = "time"
    COUNT = "count"
    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    RUNNING = "running"
    COMPLETE = "complete"
    ALARM = "alarm"
    NOTICE = "notice"
    KEY = "key"


STYLES = {
    Role.PLAIN: Style(),
    Role.TEXT: Style(color=TEXT),
    Role.STRONG: Style(color="#f2f5f8", bold=True),
    Role.DIM: Style(color="#8a96a5"),
    Role.RULE: Style(color="#37424f"),
    Role.TITLE: Style(color="#8fb8de", bold=True),
    Role.RESIDENT: Style(color="#4db6a4"),
    Role.IN_FLIGHT: Style(color="#e6b04f"),
    Role.IDLE: Style(color="#7f8fc9"),
    Role.OTHER: Style(color="#8a96a5"),
    Role.FREE: Style(color="#37424f"),
    Role.EVICTED: Style(color="#56636f"),
    Role.MEMORY: Style(color="#2f8177"),
    Role.IDLE_LINE: Style(color="#5a67a3"),
    Role.HOST: Style(color="#626e7c"),
    Role.TIME: Style(color="#8d6b98"),
    Role.COUNT: Style(color="#a37d38"),
    Role.PASS: Style(color="#78c27d", bold=True),
    Role.WARN: Style(color="#e6b04f", bold=True),
    Role.FAIL: Style(color="#f0736a", bold=True),
    Role.RUNNING: Style(color="#78c27d", bold=True),
    Role.COMPLETE: Style(color="#8fb8de", bold=True),
    Role.ALARM: Style(color="#ffffff", bgcolor="#a8322b", bold=True),
    Role.NOTICE: Style(color="#11161d", bgcolor="#e6b04f", bold=True),
    Role.KEY: Style(color="#f2f5f8", bold=True),
}
FAINT = (Role.DIM, Role.RULE, Role.FREE, Role.EVICTED)
PLAIN = {
    role: Style(
        bold=style.bold,
        reverse=style.bgcolor is not None or None,
        dim=role in FAINT or None,
    )
    for role, style in STYLES.items()
}


def style_of(role: Role, *, has_colour: bool) -> Style:
    """The look of ``role``, with or without colour."""
    return (STYLES if has_colour else PLAIN)[role]
