"""The base of screens that show a run: each widget on them takes the newest snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen

from memscope_dashboards.tui.run_feed import RunSnapshot
from memscope_dashboards.tui.widgets.keys import BackKeys
from memscope_dashboards.tui.widgets.lines_widget import LinesWidget
from memscope_dashboards.tui.widgets.masthead import Masthead
from memscope_dashboards.tui.widgets.processes import Processes


class SnapshotScreen(Screen[None]):
    """Kept up to date by the app."""

    def show(self, found: RunSnapshot, *, is_paused: bool) -> None:
        """Draw what changed."""
        for masthead in self.query(Masthead):
            masthead.is_paused = is_paused
        for processes in self.query(Processes):
            processes.found = found
        for widget in self.query(LinesWidget):
            widget.show(found.snapshot)


class ScrollingScreen(SnapshotScreen):
    """One scrolling column below the masthead."""

    CSS = """
    ScrollingScreen { layout: vertical; }
    ScrollingScreen VerticalScroll { padding: 0 1; scrollbar-size-vertical: 1; }
    ScrollingScreen Masthead, ScrollingScreen Processes { padding: 0 1; }
    ScrollingScreen LinesWidget { height: auto; margin: 0 0 1 0; }
    ScrollingScreen Masthead { margin: 0; }
    ScrollingScreen VerticalScroll { height: 1fr; }
    ScrollingScreen BackKeys { height: 1; margin: 0; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss", "Back")]

    def compose(self) -> ComposeResult:
        """The parts below the masthead."""
        yield Masthead()
        yield Processes()
        with VerticalScroll():
            yield from self.compose_parts()
        yield BackKeys()

    def compose_parts(self) -> Iterator[LinesWidget]:
        """What the screen shows, from the top."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Give the column focus, so that the keys scroll it."""
        self.query_one(VerticalScroll).focus()
