"""Help: keys, glyphs, and what the parts of the live view mean."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

HELP = """\
q  quit                       p  pause the view; reading goes on
v  all figures and verdicts   ?  this help, Esc to close it
m  the memory's ledger        [ ]  the process before, the next one

Layers, a cell each, at the end of the last step
  █ resident: ready for compute     ▒ in flight: being uploaded
  · evicted: off the device         blank: not used yet
  in flight ?: which layer is recorded once its upload is over

Memory at the end of the last step, up to the device's limit
  █ resident  ▒ in flight  ░ idle in the weight pool  ▚ other  · left

Steps are those after warm-up. Every figure is the one that
`memscope summary --at batch:N` gives for the batch N at the top.

Verdicts
  ✓ pass  ! close to the limit  ✗ fail  ? not measured
  – n/a: does not apply to this run

PARTIAL at the top: the recording is cut or damaged; what is shown
was read, and events may be missing."""


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

    def compose(self) -> ComposeResult:
        """One box of text."""
        box = Static(HELP, markup=False)
        box.border_title = "memscope live"
        yield box
