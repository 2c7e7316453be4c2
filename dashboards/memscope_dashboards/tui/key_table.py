"""Every key of the live view: what it does, and its text in the footer and in help.

A key that opens a screen names it as ``module:class`` in ``screens``; it is imported when the key
is pressed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """``key`` and ``action`` are Textual's. ``label`` is the word in the footer, "" for none.

    ``glyph`` is what people press. ``is_of_run``: useful only in a run of several processes.
    """

    key: str
    action: str
    glyph: str
    label: str
    help: str
    is_of_run: bool = False


KEYS = (
    Key("q", "quit", "q", "quit", "quit"),
    Key("p", "pause", "p", "pause", "pause the view; reading continues"),
    Key("m", "toggle('ledger:LedgerScreen')", "m", "memory", "where the memory is"),
    Key("v", "toggle('metrics:MetricsScreen')", "v", "all metrics", "all metrics and verdicts"),
    Key("question_mark", "help", "?", "help", "this help; Esc closes it"),
    Key("left_square_bracket", "move(-1)", "[", "", "previous process", is_of_run=True),
    Key("right_square_bracket", "move(1)", "]", "", "next process", is_of_run=True),
)
FOOTER = tuple((each.glyph, each.label) for each in KEYS if each.label)
BACK_FOOTER = (("Esc", "back"), ("↑ ↓", "scroll"), *(pair for pair in FOOTER if pair[0] in "pq"))
