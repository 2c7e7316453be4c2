"""Where the memory is: the whole ledger of each device, with reasons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.binding import BindingType

from memscope_dashboards.tui.screens.snapshot_screen import ScrollingScreen
from memscope_dashboards.tui.widgets.ledger_lines import LedgerLines
from memscope_dashboards.tui.widgets.lines import LinesWidget


class LedgerScreen(ScrollingScreen):
    """Every line that has bytes, then what could not be measured."""

    BINDINGS: ClassVar[list[BindingType]] = [("m", "dismiss", "Back")]

    def compose_parts(self) -> Iterator[LinesWidget]:
        """See the class."""
        yield LedgerLines()
