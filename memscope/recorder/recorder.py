"""The recorder: one append on the program's thread; its own thread encodes and writes.

It must never disturb the program. A fault while recording ends the recording, with one line on
stderr.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Self

from memscope.atomic_file import explained_write_errors
from memscope.facts import Fact
from memscope.recorder.active import push_active, remove_active
from memscope.recorder.backlog import Backlog
from memscope.recorder.emitter import Emitter
from memscope.recorder.output_file import check_writable
from memscope.recorder.probe_list import Probe, ProbeList
from memscope.recorder.process_hooks import PinSignal, await_exit, open_recorders
from memscope.recorder.retention import DEFAULT_KEEP_LAST, parse_keep_last
from memscope.recorder.rows import Row, make_emit
from memscope.recorder.segments import Segments

SAMPLE_SECONDS = 0.1  # between two looks of the writer's thread at probes and rows
FLUSH_SECONDS = 0.5
FLUSH_ROWS = 4096
REST_SECONDS = 50e-6  # within a batch of many rows
MAX_BACKLOG_ROWS = 500_000
THREAD_NAME = "memscope-writer"
FORK_SECONDS = 1.0  # a fork waits no longer than this for a batch to be written

_clock = time.perf_counter_ns


class Recorder(Emitter):
    """Writes one recording. A program without a recorder uses None: there is no null object."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        force: bool = False,
        probes: Sequence[Probe] = (),
        keep_last: str = DEFAULT_KEEP_LAST,
    ) -> None:
        """Open ``path`` and flush the header. Raises MemscopeError if that fails.

        ``keep_last``: the most that the recording takes on disk, like "1GiB", or "all".
        """
        limit = parse_keep_last(keep_last, "keep_last={!r}")
        self.path = Path(path)
        self.stopped: str | None = None  # why nothing is recorded any more
        self._rows: list[Row] = []
        emit, self._switch_off = make_emit(self._rows)
        super().__init__(emit)
        self._probes = ProbeList(probes)
        self._backlog = Backlog()
        self._wake = threading.Lock()  # held; let go of to wake the thread, cheaper than an Event
        self._wake.acquire()
        self._flushes: list[threading.Event] = []  # set once the rows of their moment are written
        self._closing = False
        self._turn = threading.RLock()  # guards the next two, `_closing`, `stopped`, `_flushes`
        self._is_paused = self._has_paused = False
        self._segments = _begin(self.path, limit, force=force)
        self._removed = self._segments.removed
        self._pin_signal = PinSignal(self.mark) if limit is not None else None
        self._start_thread()
        open_recorders.add(self)
        self._probes.begin(self)

    @property
    def dropped_rows(self) -> int:
        """Rows that became sums because they came faster than they could be written."""
        return self._backlog.dropped_rows

    def flush(self, timeout_s: float) -> bool:
        """Write all rows up to now. Returns whether that took at most ``timeout_s`` seconds.

        Returns False if the recorder has stopped or is closed, and on the writer's own thread.
        """
        is_writer = threading.current_thread() is self._thread
        written = threading.Event()
        with self._turn:
            if is_writer or self._closing or self.stopped is not None:
                return False
            self._flushes.append(written)
        self._call_thread()
        return written.wait(timeout_s) and self.stopped is None

    def close(self) -> None:
        """Write the rest and the end marker. Safe to call twice."""
        if not self._begin_closing():
            return
        self._call_thread()
        self._thread.join()
        self._switch_off()
        self._probes.close()
        self._end()

    def _begin_closing(self) -> bool:
        """Whether it was open until now.

        If another thread forks, the writer's thread is paused: wait for it.
        """
        until = time.monotonic() + FORK_SECONDS
        while True:
            with self._turn:
                if self._closing:
                    return False
                if not self._is_paused or time.monotonic() > until:
                    self._closing = True
                    return True
            time.sleep(0.001)

    @property
    def is_closing(self) -> bool:
        """Whether it is closed or closing. Probes are then called for the last time."""
        return self._closing

    def __enter__(self) -> Self:
        push_active(self)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        remove_active(self)
        if error is not None:
            self._note_error(error)
        self.close()

    def _note_error(self, error: BaseException) -> None:
        """Record an exception that leaves the block, if it says that memory ran out."""
        from memscope.recorder.memory_errors import record_error

        record_error(self, error)

    # -- the writer's thread ------------------------------------------------------------------

    def _start_thread(self) -> None:
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            is_last = False
            while not is_last:
                is_last = self._closing  # read before, so that what came until then is written
                if is_last:
                    self._probes.sample(self)  # the last readings are of one moment
                self._drain()
                with self._turn:
                    if self._is_paused:
                        self._has_paused = True
                        return
        except OSError as error:
            self._stop(f"{self.path} cannot be written ({error.strerror})")
        except Exception as error:
            self._stop(f"a fault in memscope: {type(error).__name__}: {error}")

    def _call_thread(self) -> None:
        """Wake the writer's thread."""
        with contextlib.suppress(RuntimeError):  # it was called and has not looked yet
            self._wake.release()

    def _drain(self) -> None:
        rows = self._rows
        due = flushed = time.monotonic()
        while not self._closing and not self._is_paused:
            self._wake.acquire(timeout=max(due - time.monotonic(), 0.0))
            now = time.monotonic()
            if now >= due:
                due = now + SAMPLE_SECONDS
                self._probes.sample(self)
            self._bound_backlog()
            is_due = len(rows) >= FLUSH_ROWS or (rows and now - flushed >= FLUSH_SECONDS)
            if is_due or self._flushes:
                flushed = now
                self._write_out()
            if len(rows) < MAX_BACKLOG_ROWS // 2:
                self._tidy()
        self._write_out()

    def _write_out(self) -> None:
        asked = len(self._flushes)  # before the rows are counted: each waits for rows before it
        rows = self._rows
        left = len(rows)  # what comes in meanwhile waits: to drain until empty makes tiny batches
        is_gentle = FLUSH_ROWS // 4 <= left <= FLUSH_ROWS and not (asked or self._closing)
        while left > 0:
            taken = rows[: min(left, FLUSH_ROWS)]  # transposing more at once costs twice as much
            del rows[: len(taken)]
            left -= len(taken)
            self._segments.write(taken, rest_seconds=REST_SECONDS if is_gentle else 0.0)
        if sums := self._backlog.take():
            self._segments.write(sums)
        self._answer_flushes(asked)

    def _answer_flushes(self, count: int) -> None:
        for written in self._flushes[:count]:
            written.set()
        del self._flushes[:count]

    def _tidy(self) -> None:
        """Downsample or delete old segments for a moment, and record what was deleted."""
        self._segments.tidy(lambda: self._is_paused or self._closing or bool(self._flushes))
        if self._segments.removed != self._removed:
            self._removed = self._segments.removed
            self.fact(Fact.REMOVED, asdict(self._removed))

    def _bound_backlog(self) -> None:
        """If rows come faster than they can be written, replace the excess by sums per step."""
        if len(self._rows) >= MAX_BACKLOG_ROWS:
            self._backlog.shorten(self._rows, FLUSH_ROWS)

    def _stop(self, reason: str) -> None:
        """End the recording; the program goes on."""
        with self._turn:
            self.stopped = reason
        self._switch_off()
        self._probes.close()
        self._rows.clear()
        self._answer_flushes(len(self._flushes))
        with contextlib.suppress(Exception):
            print(f"memscope: recording stopped: {reason}; the program goes on.", file=sys.stderr)
        with contextlib.suppress(Exception):
            self._segments.give_up(reason)

    def _end(self) -> None:
        open_recorders.discard(self)
        self._restore_signal()
        if self.stopped is None:
            try:
                self._write_out()  # what came while another thread forked, for long
                self._segments.end()
            except OSError as error:
                self._stop(f"{self.path} cannot be written ({error.strerror})")
        self._segments.close()

    def _restore_signal(self) -> None:
        if self._pin_signal is not None:
            self._pin_signal.restore()

    def pause(self) -> None:
        """End the thread before a fork: the child would inherit locks that nobody releases."""
        if threading.current_thread() is self._thread:
            return
        with self._turn:
            self._is_paused = not self._closing  # it ends then by itself
        self._call_thread()
        self._thread.join(FORK_SECONDS)
        if not self._thread.is_alive():
            await_exit(self._thread.native_id)

    def resume(self) -> None:
        """Go on after a fork."""
        with self._turn:  # until the thread is there: `close` waits for it
            has_ended, self._is_paused, self._has_paused = self._has_paused, False, False
            self._wake.acquire(blocking=False)
            if has_ended and not self._closing:
                self._start_thread()

    def leave_in_child(self) -> None:
        """After a fork the file belongs to the parent only."""
        self._switch_off()
        self._turn = threading.RLock()  # a thread that is not here may have held it
        self._closing = True
        self.stopped = "forked"
        remove_active(self)
        self._probes.close()
        self._restore_signal()
        self._segments.close()


def _begin(path: Path, limit: int | None, *, force: bool) -> Segments:
    check_writable(path, force=force, to_force="force=True")
    with explained_write_errors(path):
        if force and path.exists():
            from memscope.reader.chain import remove_recording

            remove_recording(path)  # readers of the old file keep what they have
        absolute = Path(os.path.abspath(path))  # the program may go to another folder
        return Segments(absolute, limit, _clock())
