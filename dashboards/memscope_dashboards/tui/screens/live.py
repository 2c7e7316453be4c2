"""The live view: one screen for one recording."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from memscope.analysis.summary.no_device import metrics_without_device
from memscope_dashboards.tui.run_feed import RunSnapshot
from memscope_dashboards.tui.screens.snapshot_screen import SnapshotScreen
from memscope_dashboards.tui.widgets.counters import Counters
from memscope_dashboards.tui.widgets.keys import Keys
from memscope_dashboards.tui.widgets.layer_strip import LayerStrip
from memscope_dashboards.tui.widgets.ledger_widget import LedgerWidget
from memscope_dashboards.tui.widgets.masthead import Masthead
from memscope_dashboards.tui.widgets.memory_bar import MemoryBar
from memscope_dashboards.tui.widgets.memory_curves import MemoryCurves
from memscope_dashboards.tui.widgets.processes import Processes
from memscope_dashboards.tui.widgets.verdicts import PRESSING, REASONED, Verdicts
from memscope_dashboards.tui.widgets.waiting import Waiting

WIDE_FROM = (120, 34)
LEDGER_ROWS = (6, 16)  # in a small terminal, in a large one


class LiveScreen(SnapshotScreen):
    """One column in a small terminal, two in a large one.

    A program without a residency window gets the ledger instead of layers and weights. Without a
    recorded device there is no ledger.
    """

    CSS = """
    LiveScreen { layout: vertical; overflow: hidden; }
    #body { height: 1fr; layout: vertical; overflow: hidden; padding: 0 1; }
    #left, #right { height: auto; width: 100%; }
    #right { height: 1fr; }
    Masthead, Processes, Keys { padding: 0 1; background: $surface; }
    Verdicts { height: 1fr; }
    MemoryCurves { height: auto; }
    Waiting { height: 1fr; display: none; }
    LiveScreen.waiting Waiting { display: block; }
    LiveScreen.waiting #body { display: none; }
    LedgerWidget { display: none; }
    LiveScreen.plain LedgerWidget { display: block; }
    LiveScreen.without-device LedgerWidget { display: none; }
    LiveScreen.plain LayerStrip, LiveScreen.plain MemoryBar { display: none; }
    LiveScreen.wide #body { layout: horizontal; padding: 1 2 0 2; }
    LiveScreen.wide Masthead, LiveScreen.wide Processes, LiveScreen.wide Keys { padding: 0 2; }
    LiveScreen.wide #left { width: 1fr; height: 1fr; margin: 0 3 0 0; }
    LiveScreen.wide #right { width: 46%; max-width: 66; height: 1fr; }
    LiveScreen.wide LinesWidget { margin: 0 0 1 0; }
    LiveScreen.wide Masthead, LiveScreen.wide Processes, LiveScreen.wide Keys { margin: 0; }
    LiveScreen.wide MemoryCurves { height: 1fr; }
    """

    def compose(self) -> ComposeResult:
        """Widgets in the order of reading."""
        yield Masthead()
        yield Processes()
        yield Waiting()
        with Horizontal(id="body"):
            with Vertical(id="left"):
                yield LayerStrip()
                yield MemoryBar()
                yield LedgerWidget()
                yield MemoryCurves()
            with Vertical(id="right"):
                yield Counters()
                yield Verdicts()
        yield Keys()

    def on_resize(self, event: events.Resize) -> None:
        """Choose the layout for the terminal's size."""
        is_wide = event.size.width >= WIDE_FROM[0] and event.size.height >= WIDE_FROM[1]
        self.set_class(is_wide, "wide")
        self.query_one(MemoryCurves).is_charted = is_wide
        self.query_one(Counters).is_tall = is_wide
        self.query_one(LedgerWidget).most_rows = LEDGER_ROWS[is_wide]
        self.query_one(MemoryCurves).most_rows = max(event.size.height - 20, 2)
        self.query_one(Verdicts).with_reasons = REASONED if is_wide else PRESSING

    def show(self, found: RunSnapshot, *, is_paused: bool) -> None:
        """Draw what changed."""
        self.set_class(found.snapshot.summary is None, "waiting")
        self.set_class(not found.snapshot.program.has_window, "plain")
        summary = found.snapshot.summary
        self.set_class(
            summary is not None and bool(metrics_without_device(summary)), "without-device"
        )
        super().show(found, is_paused=is_paused)
