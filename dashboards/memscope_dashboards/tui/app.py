"""The live view as a Textual app. A thread reads snapshots, and the app shows the newest."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.theme import Theme

from memscope.errors import MemscopeError
from memscope_dashboards.tui import screens
from memscope_dashboards.tui.feed import PERIOD_S, Snapshot
from memscope_dashboards.tui.key_table import KEYS
from memscope_dashboards.tui.palette import BACKGROUND, TEXT
from memscope_dashboards.tui.run_feed import RunFeed, RunSnapshot
from memscope_dashboards.tui.screens.help import HelpScreen
from memscope_dashboards.tui.screens.live import LiveScreen
from memscope_dashboards.tui.screens.snapshot_screen import SnapshotScreen

THEME = Theme(
    name="memscope",
    primary="#8fb8de",
    background=BACKGROUND,
    surface="#18202a",
    foreground=TEXT,
    dark=True,
)


@dataclass
class SnapshotRead(Message):
    """The feed's thread read a newer state of the run. It replaces one that still waits."""

    found: RunSnapshot

    def can_replace(self, message: Message) -> bool:
        """Only the newest snapshot is worth drawing."""
        return isinstance(message, SnapshotRead)


@dataclass
class FeedFailed(Message):
    """The feed cannot go on. The app ends with this error."""

    error: MemscopeError


class LiveApp(App[MemscopeError | None]):
    """Shows the run that ``feed`` follows. Returns the error that ended it, if one did."""

    TITLE = "memscope live"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(each.key, each.action, each.help) for each in KEYS),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(self, feed: RunFeed, *, period_s: float = PERIOD_S) -> None:
        super().__init__()
        self.register_theme(THEME)
        self.theme = THEME.name
        self._feed = feed
        self._period_s = period_s
        self._stop = threading.Event()
        self._found: RunSnapshot | None = None
        self._newest: RunSnapshot | None = None
        self._is_paused = False
        self._thread = threading.Thread(target=self._follow, name="memscope-feed", daemon=True)

    async def on_mount(self) -> None:
        """Start following."""
        await self.push_screen(LiveScreen())
        self._thread.start()

    def on_unmount(self) -> None:
        """Stop following."""
        self._stop.set()

    def on_snapshot_read(self, message: SnapshotRead) -> None:
        """Show the snapshot, or keep it for later while the view is paused."""
        if not self._is_paused or self._found is None:
            self._found = message.found
            self._show()
        else:
            self._newest = message.found

    def on_feed_failed(self, message: FeedFailed) -> None:
        """End with the error."""
        self.exit(message.error, return_code=1)

    def action_pause(self) -> None:
        """Pause the view, or resume with the newest snapshot."""
        self._is_paused = not self._is_paused
        if not self._is_paused and self._newest is not None:
            self._found, self._newest = self._newest, None
        self._show()

    def action_move(self, count: int) -> None:
        """Show the process ``count`` places further on."""
        self._feed.move(count)

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot on the screen; None before the first one."""
        return None if self._found is None else self._found.snapshot

    async def action_toggle(self, screen_path: str) -> None:
        """Open the screen ``module:class``, or close it if it is on top."""
        module, _, name = screen_path.partition(":")
        screen = getattr(import_module(f"{screens.__name__}.{module}"), name)
        if isinstance(self.screen, screen):
            await self.pop_screen()
            return
        await self.push_screen(screen())
        self._show()

    def action_help(self) -> None:
        """Explain the keys and what is on the screen."""
        self.push_screen(HelpScreen(self._found))

    def _show(self) -> None:
        if self._found is None:
            return
        for screen in self.screen_stack:
            if isinstance(screen, SnapshotScreen):
                screen.show(self._found, is_paused=self._is_paused)

    def _follow(self) -> None:
        """Run in the feed's thread, which posts messages and touches no widget."""
        try:
            self._feed.follow(self._publish, self._stop, period_s=self._period_s)
        except Exception as error:
            problem = f"The recording cannot be followed ({type(error).__name__}: {error})."
            self.post_message(
                FeedFailed(MemscopeError(problem, "Read it with `memscope summary`."))
            )

    def _publish(self, found: RunSnapshot) -> None:
        self.post_message(SnapshotRead(found))


def follow(path: Path, *, warmup_steps: int | None = None) -> int:
    """Run the live view on the run at ``path`` until the user quits. Returns the exit code.

    Raises MemscopeError if a recording cannot be followed to the end.
    """
    app = LiveApp(RunFeed(path, warmup_steps=warmup_steps))
    error = app.run()
    if error is not None:
        raise error
    return app.return_code or 0
