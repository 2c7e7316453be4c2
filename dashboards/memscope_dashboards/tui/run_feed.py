"""Follows the processes of a run while they start and end, without Textual.

Each file has a feed. The shown process is polled every time, the others in turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from memscope.analysis.summary.run_summary import RunSummary, summarize_run
from memscope.analysis.summary.summary import Summary
from memscope.errors import MemscopeError
from memscope.reader.run_files import RunFiles, find_run
from memscope_dashboards.tui.feed import PERIOD_S, Feed, Snapshot

LOOK_S = 1.0  # between two searches for processes
LOOK_SHARE = 0.02  # largest share of time spent on searching


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """The shown process and its run. ``run`` is None until a header was read.

    ``shown`` is its index among the run's processes, or None if it has no header yet.
    """

    snapshot: Snapshot
    run: RunSummary | None = None
    shown: int | None = None


class RunFeed:
    """Reads the run at ``argument`` (a file, a folder or a glob) for one viewer."""

    def __init__(self, argument: Path, *, warmup_steps: int | None = None) -> None:
        self._argument = argument
        self._warmup_steps = warmup_steps
        self._feeds: dict[Path, Feed] = {}
        self._newest: dict[Path, Snapshot] = {}
        self._files = RunFiles(())
        self._problem: str | None = None
        self._look_at = 0.0
        self._shown: Path | None = None
        self._moves = 0  # how far the user moved since the last poll
        self._has_user_chosen = False
        self._is_settled = False
        self._turn = 0

    def move(self, count: int) -> None:
        """Show the process ``count`` places further on. Takes effect at the next poll."""
        self._moves += count

    def poll(self) -> RunSnapshot:
        """Read new batches of the shown process and of one other."""
        if time.monotonic() >= self._look_at:
            self._look()
        if not self._feeds:
            return RunSnapshot(Snapshot(self._argument, self._problem))
        self._choose()
        assert self._shown is not None
        for path in dict.fromkeys((self._shown, self._next_other())):
            self._newest[path] = self._within(self._feeds[path].poll())
        return self._snapshot(self._newest[self._shown])

    def follow(
        self,
        publish: Callable[[RunSnapshot], object],
        stop: threading.Event,
        *,
        period_s: float = PERIOD_S,
    ) -> None:
        """Poll every ``period_s`` and publish each snapshot, until ``stop`` is set."""
        while not stop.is_set():
            found = self.poll()
            publish(found)
            stop.wait(0.0 if found.snapshot.is_catching_up else period_s)
        self.close()

    def close(self) -> None:
        """Close all files."""
        for feed in self._feeds.values():
            feed.close()

    def _look(self) -> None:
        """Find the files that belong to the run now."""
        start = time.monotonic()
        try:
            self._files, self._problem = find_run(self._argument), None
        except MemscopeError as error:
            self._files, self._problem = RunFiles(()), str(error)
        paths = self._files.paths
        for path in [path for path in self._feeds if paths and path not in paths]:
            self._feeds.pop(path).close()
            self._newest.pop(path, None)
        known = self._feeds
        self._feeds = {path: known.get(path) or self._open(path) for path in paths} or known
        took = time.monotonic() - start
        self._look_at = start + took + max(LOOK_S, took / LOOK_SHARE)

    def _within(self, snapshot: Snapshot) -> Snapshot:
        """Mark the snapshot partial if a file of the run cannot be read."""
        summary = snapshot.summary
        if summary is None or not self._files.left_out:
            return snapshot
        return replace(snapshot, summary=replace(summary, state=self._files.within(summary.state)))

    def _open(self, path: Path) -> Feed:
        return Feed(path, warmup_steps=self._warmup_steps)

    def _choose(self) -> None:
        """Show the process the user chose, else the one with the most memory."""
        paths = list(self._feeds)
        if self._shown not in paths:
            self._shown, self._has_user_chosen, self._is_settled = paths[0], False, False
        if moves := self._moves:
            self._moves -= moves
            self._has_user_chosen = True
            self._shown = paths[(paths.index(self._shown) + moves) % len(paths)]
        elif not self._has_user_chosen and (run := self._run()) is not None:
            shown = next((each for each in run.processes if each.path == str(self._shown)), None)
            if not self._is_settled or shown is None or not run.is_alike(shown):
                self._shown = next(path for path in paths if str(path) == run.holder.path)
            self._is_settled = not self._unread and not self._is_catching_up

    @property
    def _is_catching_up(self) -> bool:
        return any(snapshot.is_catching_up for snapshot in self._newest.values())

    def _run(self) -> RunSummary | None:
        """The run as read so far; None if no header was read."""
        parts = [
            (str(path), summary)
            for path in self._feeds
            if (summary := self._summary(path)) is not None
        ]
        return summarize_run(parts) if parts else None

    def _summary(self, path: Path) -> Summary | None:
        snapshot = self._newest.get(path)
        return None if snapshot is None else snapshot.summary

    @property
    def _unread(self) -> list[Path]:
        return [path for path in self._feeds if path not in self._newest]

    def _next_other(self) -> Path:
        paths = list(self._feeds)
        self._turn += 1
        return next(iter(self._unread), paths[self._turn % len(paths)])

    def _snapshot(self, snapshot: Snapshot) -> RunSnapshot:
        run = self._run()
        if run is None:
            return RunSnapshot(snapshot)
        names = [process.path for process in run.processes]
        shown = names.index(str(self._shown)) if str(self._shown) in names else None
        return RunSnapshot(snapshot, run, shown)
