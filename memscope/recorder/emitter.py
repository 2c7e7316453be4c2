"""What a program tells a recorder: facts, readings, marks, phases and steps."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from memscope.events import Kind
from memscope.facts import Fact, StepSource
from memscope.recorder.rows import Emit

# Plain ints: an enum member costs a lookup at each event.
_FACT = int(Kind.FACT)
_MARK = int(Kind.MARK)
_PHASE = int(Kind.PHASE)
_SAMPLE = int(Kind.SAMPLE)
_STEP = int(Kind.STEP)


class Emitter:
    """Turns calls into rows, on the thread that calls."""

    def __init__(self, emit: Emit) -> None:
        self.emit = emit
        self.clock = time.perf_counter_ns
        self._step = -1
        self._is_in_step = False
        self.step_source: str | None = None  # who begins and ends steps, once somebody has said so
        self.at_step_end: Callable[[int], None] | None = None  # on the program's thread

    def fact(self, key: str, data: object) -> None:
        """Record something about the run. The last value of a key counts."""
        self.emit(_FACT, name=key, data=data)

    def sample(
        self,
        name: str,
        *,
        bytes: int | None = None,
        value: float | None = None,
        step: int = -1,
        layer: int = -1,
        device: int = -1,
    ) -> None:
        """Record one reading. A reading that could not be taken is not recorded."""
        self.emit(_SAMPLE, step, layer, name, bytes, value=value, device=device)

    def mark(self, name: str) -> None:
        """Record a moment that the user names."""
        self.emit(_MARK, self.open_step, name=name)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record a stretch of time that the user names."""
        start = self.clock()
        try:
            yield
        finally:
            self.emit(_PHASE, self.open_step, name=name, duration_ns=self.clock() - start)

    def take_steps(self, source: str) -> None:
        """From now on ``source`` begins and ends steps, and no other source does."""
        if self.step_source != source:
            self.step_source = source
            self._is_in_step = False
            self.fact(Fact.STEP_SOURCE, source)

    @contextlib.contextmanager
    def step(self) -> Iterator[int]:
        """Record one step. Yields its number; rows that belong to the step are emitted inside."""
        self.take_steps(StepSource.MARKED)
        number, start = self.begin_step(), self.clock()
        try:
            yield number
        except BaseException as error:
            self._note_error(error)
            raise
        finally:
            self.end_step(number, start)

    @property
    def open_step(self) -> int:
        """Number of the step that has begun and not ended, -1 outside a step."""
        return self._step if self._is_in_step else -1

    def begin_step(self) -> int:
        """Begin a step without a ``with`` block and return its number. ``end_step`` ends it."""
        self._step += 1
        self._is_in_step = True
        return self._step

    def end_step(self, number: int, start_ns: int) -> None:
        """End a step that began at ``start_ns`` by ``clock``."""
        self._is_in_step = False
        self.emit(_STEP, number, duration_ns=self.clock() - start_ns)
        if self.at_step_end is not None and self.step_source != StepSource.SECOND:
            self.at_step_end(number)

    def _note_error(self, error: BaseException) -> None:
        """Called with an exception that leaves a step."""
