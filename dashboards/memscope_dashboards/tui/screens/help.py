"""Help: keys, and what the parts mean that the live view has for this program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from memscope_dashboards.tui.run_feed import RunSnapshot

KEYS = """\
q  quit                       p  pause the view; reading goes on
v  all metrics and verdicts   ?  this help, Esc to close it
m  the memory's ledger"""

PROCESSES = "        [ ]  the process before, the next one"

WINDOW = """\
Layers, a cell each, at the end of the last step
  █ resident: ready for compute     ▒ in flight: being uploaded
  · evicted: off the device         blank: not used yet
  in flight ?: which layer is recorded once its upload is over

Memory at the end of the last step, up to the device's limit
  █ resident  ▒ in flight  ░ idle in the weight pool  ▚ other  · left"""

LEDGER = """\
Device: the ledger, its largest lines; m shows all
  ~ partial: it may be more, m says of what"""

METRICS = """\
Steps are those after warm-up. Every metric is the one that
`memscope summary --at batch:N` gives for the batch N at the top."""

VERDICTS = """\
Verdicts
  ✓ pass  ! close to the limit  ✗ fail  ? not measured
  – n/a: does not apply to this run"""

PARTIAL = """\
PARTIAL at the top: the recording is cut or damaged; what is shown
was read, and events may be missing."""


def help_text(found: RunSnapshot | None) -> str:
    """What applies to the program that is shown; the keys alone before one is."""
    return "\n\n".join(_parts(found))


def _parts(found: RunSnapshot | None) -> Iterator[str]:
    has_others = found is not None and found.run is not None and len(found.run.processes) > 1
    yield KEYS + (PROCESSES if has_others else "")
    if found is None or (summary := found.snapshot.summary) is None:
        return
    if found.snapshot.program.has_window:
        yield WINDOW
    elif summary.ledgers:
        yield LEDGER
    yield from (METRICS, VERDICTS, PARTIAL)


class HelpScreen(ModalScreen[None]):
    """Closed by any of its keys."""

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
