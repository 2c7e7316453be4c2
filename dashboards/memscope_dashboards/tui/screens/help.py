"""The help screen: the keys, and the parts of the live view that this program has."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from memscope_dashboards.tui.key_table import KEYS
from memscope_dashboards.tui.run_feed import RunSnapshot

COLUMN = 38

WINDOW = """\
Layers: one cell per layer, at the end of the last step
  █ resident: ready for compute     ▒ in flight: being uploaded
  · evicted: not on the device      blank: not used yet
  in flight ?: the layer is known when its upload has ended

Memory: at the end of the last step, up to the device's limit
  █ resident  ▒ in flight  ░ idle in the weight pool  ▚ other  · free"""

LEDGER = """\
Device: the largest parts of its memory; m shows all
  ~ partial: the part may be larger; m says why"""

METRICS = """\
Metrics cover the steps after warm-up. They equal those of
`memscope summary --at batch:N`, where N is the batch at the top."""

VERDICTS = """\
Verdicts
  ✓ pass  ! close to the limit  ✗ fail  ? not measured
  – n/a: does not apply to this run"""

PARTIAL = """\
PARTIAL at the top: the recording is cut or damaged. Everything shown
was recorded, but some events may be missing."""


def help_text(found: RunSnapshot | None) -> str:
    """The parts that apply to this program; only the keys if nothing was read yet."""
    return "\n\n".join(_parts(found))


def _parts(found: RunSnapshot | None) -> Iterator[str]:
    has_others = found is not None and found.run is not None and len(found.run.processes) > 1
    yield key_lines(has_others=has_others)
    if found is None or (summary := found.snapshot.summary) is None:
        return
    if found.snapshot.program.has_window:
        yield WINDOW
    elif summary.ledgers:
        yield LEDGER
    yield from (METRICS, VERDICTS, PARTIAL)


def key_lines(*, has_others: bool) -> str:
    """Keys and what they do, in two columns."""
    cells = [f"{key.glyph}  {key.help}" for key in KEYS if has_others or not key.is_of_run]
    pairs = zip_longest(cells[::2], cells[1::2], fillvalue="")
    return "\n".join(f"{left:<{COLUMN}}{right}".rstrip() for left, right in pairs)


class HelpScreen(ModalScreen[None]):
    """A box over the live view."""

    CSS = """
    HelpScreen { align: center middle; background: $background 60%; }
    HelpScreen Static { width: 78; max-width: 100%; height: auto; max-height: 100%;
        padding: 0 1; border: round $primary; background: $surface; color: $foreground; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,question_mark,enter", "dismiss", "Back"),
    ]

    def __init__(self, found: RunSnapshot | None) -> None:
        super().__init__()
        self._text = help_text(found)

    def compose(self) -> ComposeResult:
        """One box of text."""
        box = Static(self._text, markup=False)
        box.border_title = "memscope live"
        yield box
