"""The memory screen: the whole ledger of each device, with reasons."""

from __future__ import annotations

from collections.abc import Iterator

from memscope_dashboards.tui.screens.snapshot_screen import ScrollingScreen
from memscope_dashboards.tui.widgets.ledger_widget import LedgerWidget
from memscope_dashboards.tui.widgets.lines_widget import LinesWidget


class LedgerScreen(ScrollingScreen):
    """Every line that has bytes, then what could not be measured and why."""

    def compose_parts(self) -> Iterator[LinesWidget]:
        """See the class."""
        yield LedgerWidget()
