"""Follows a recording while it grows, without Textual and without waiting for the recorder.

The file may not exist yet. It may grow, end, continue in another segment or be replaced. The feed
reads only whole messages, adds them to a Timeline and returns frozen snapshots. Its memory use
does not grow with the file.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from memscope.analysis.metrics.memory import find_device
from memscope.analysis.summary.program import Program, describe_program
from memscope.analysis.summary.residency_map import LayerStates, find_layer_states
from memscope.analysis.summary.summary import Summary, summarize
from memscope.analysis.timeline.facts import Device
from memscope.analysis.timeline.timeline import Steps, Timeline
from memscope.errors import MemscopeError
from memscope.reader.chain import Chain
from memscope.reader.scanner import State

READ_BYTES = 1 << 20
BUDGET_NS = 200_000_000
PERIOD_S = 0.25


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a recording at one batch number.

    ``summary`` is None until a header was read. ``problem`` says why nothing more is read.
    ``age_s`` is the time since the newest event; it compares the clocks of both machines.
    ``own_steps`` are the program's own steps; ``measured_steps`` of them come after warm-up.
    """

    path: Path
    problem: str | None = None
    is_catching_up: bool = False
    attachments: int = 0
    age_s: float | None = None
    summary: Summary | None = None
    steps: Steps | None = None
    own_steps: Steps | None = None
    measured_steps: int = 0
    last_ns: int = 0
    device: Device | None = None
    program: Program = field(default_factory=Program)
    layers: LayerStates = field(default_factory=LayerStates)


class Feed:
    """Reads the file at ``path`` for one viewer. Several may follow the same file."""

    def __init__(
        self,
        path: Path,
        *,
        warmup_steps: int | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.path = path
        self._warmup_steps = warmup_steps
        self._clock_ns = clock_ns
        self._chain: Chain | None = None
        self._timeline: Timeline | None = None
        self._problem: str | None = None
        self._is_readable = True
        self._is_catching_up = False
        self._attachments = 0
        self._view: tuple[tuple[int, State], Snapshot] | None = None

    def poll(self) -> Snapshot:
        """Read new batches for at most about 0.2 s."""
        self._attach()
        if self._chain is not None and self._timeline is not None and self._is_readable:
            self._read(self._chain, self._timeline)
        return self._snapshot()

    def follow(
        self,
        publish: Callable[[Snapshot], object],
        stop: threading.Event,
        *,
        period_s: float = PERIOD_S,
    ) -> None:
        """Poll every ``period_s`` and publish each snapshot, until ``stop`` is set."""
        while not stop.is_set():
            snapshot = self.poll()
            publish(snapshot)
            stop.wait(0.0 if snapshot.is_catching_up else period_s)
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._chain is not None:
            self._chain.close()
            self._chain = None

    def _attach(self) -> None:
        """Open the file if none is open or if another one took its place."""
        if self._chain is not None and not self._chain.is_replaced:
            self._problem = None if self._is_readable else self._problem
            return
        try:
            chain = Chain(self.path, is_followed=True)
        except FileNotFoundError:
            self._problem = f"{self.path} is still empty."
        except MemscopeError as error:
            self._problem = str(error) if self.path.exists() else self._absence()
        else:
            self.close()
            self._chain, self._view = chain, None
            self._timeline = Timeline(chain.header, warmup_steps=self._warmup_steps)
            self._problem, self._is_readable = None, True
            self._attachments += 1

    def _absence(self) -> str:
        if self._chain is None:
            return f"{self.path} does not exist yet."
        return f"{self.path} was removed. The view shows what was in it."

    def _read(self, chain: Chain, timeline: Timeline) -> None:
        deadline = self._clock_ns() + BUDGET_NS
        self._is_catching_up = False
        while pieces := chain.poll(max_bytes=READ_BYTES):
            try:
                for piece in pieces:
                    timeline.add(chain.read(piece))
            except MemscopeError as error:
                self._problem, self._is_readable = str(error), False
                return
            if self._clock_ns() >= deadline:
                self._is_catching_up = True
                return

    def _snapshot(self) -> Snapshot:
        chain, timeline = self._chain, self._timeline
        if chain is None or timeline is None:
            return Snapshot(self.path, self._problem, attachments=self._attachments)
        state = chain.state()
        if self._view is None or self._view[0] != (timeline.batches, state):
            self._view = (timeline.batches, state), self._fold(timeline, state)
        age_ns = self._clock_ns() - chain.header.started_at_ns - timeline.last_ns
        return replace(
            self._view[1],
            problem=self._problem,
            is_catching_up=self._is_catching_up,
            attachments=self._attachments,
            age_s=max(age_ns / 1e9, 0.0) if timeline.batches else None,
        )

    def _fold(self, timeline: Timeline, state: State) -> Snapshot:
        return Snapshot(
            path=self.path,
            summary=summarize(timeline, state, path=str(self.path)),
            steps=timeline.steps,
            own_steps=timeline.own_steps,
            measured_steps=len(timeline.measured_steps),
            last_ns=timeline.last_ns,
            device=find_device(timeline),
            program=describe_program(timeline),
            layers=find_layer_states(timeline),
        )
