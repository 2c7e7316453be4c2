"""What the feed's thread tells the app."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from memscope.errors import MemscopeError
from memscope_dashboards.tui.run_feed import RunSnapshot


@dataclass
class SnapshotRead(Message):
    """A newer state of the run. Takes the place of one that is still waiting."""

    found: RunSnapshot

    def can_replace(self, message: Message) -> bool:
        """Only the newest snapshot is worth drawing."""
        return isinstance(message, SnapshotRead)


@dataclass
class FeedFailed(Message):
    """The feed cannot go on; the app ends with this error."""

    error: MemscopeError
