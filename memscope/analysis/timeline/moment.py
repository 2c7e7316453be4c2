"""A moment of a recording, as ``--at`` names it, and the events up to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from memscope.errors import MemscopeError
from memscope.events import Kind
from memscope.reader.scanner import Batch
from memscope.units import TIME_UNITS_S, split_quantity


@dataclass(frozen=True, slots=True)
class Moment:
    """Where to stop. ``kind``: batch, step, time, peak or end; ``value``: its number, or ns."""

    kind: str
    value: int = 0


class PastEnd(MemscopeError):
    """The moment is after the end. ``last``: the last step, batch or ns of the recording."""

    def __init__(self, problem: str, last: int) -> None:
        super().__init__(problem, "Name an earlier moment, or --at end.")
        self.last = last


def parse_moment(text: str) -> Moment:
    """Parse ``--at``: batch:N, step:N, 12.5s, peak or end. Raises MemscopeError."""
    word = text.strip().lower()
    if word in ("peak", "end"):
        return Moment(word)
    if match := re.fullmatch(r"(batch|step):(\d{1,18})", word):
        return Moment(match[1], int(match[2]))
    try:
        number, unit = split_quantity(word)
        seconds = number * TIME_UNITS_S[unit.upper()]
    except (MemscopeError, KeyError):
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise MemscopeError(
            f"{text!r} is not a moment of a recording.",
            "Use --at batch:N, step:N, 12.5s, peak or end.",
        )
    return Moment("time", round(seconds * 1e9))


def batches_until(
    batches: Iterable[Batch], moment: Moment, *, first_step: int = 0
) -> Iterator[Batch]:
    """Yield ``batches`` up to the end of a step or up to a time; the last one is cut.

    ``first_step``: the recorded number of step 0. Raises PastEnd if that step has not ended, or
    if the recording ends before that time.
    """
    if moment.kind == "step":
        moment = Moment("step", moment.value + first_step)
    last_step, last_ns = -1, 0
    for batch in batches:
        stop = _stop(batch, moment)
        last_step = max(last_step, int(batch["step"][batch.where(Kind.STEP)].max(initial=-1)))
        if stop is None:
            last_ns = max(last_ns, int(batch["t_ns"].max(initial=0)))
            yield batch
            continue
        if stop:
            cut = batch.record.slice(0, stop)
            yield Batch(cut, batch.sequence, is_thinned=batch.is_thinned)
        return
    if moment.kind == "step":
        last_step = max(last_step - first_step, -1)
        last = f"the last step is {last_step}" if last_step >= 0 else "no step has ended"
        raise PastEnd(f"There is no step {moment.value - first_step}: {last}.", last_step)
    if moment.value > last_ns:
        asked, end = (_seconds(ns) for ns in (moment.value, last_ns // 10**6 * 10**6))
        raise PastEnd(f"There is no moment {asked} s: the recording ends at {end} s.", last_ns)


def _seconds(ns: int) -> str:
    """Seconds with all digits: a rounded end could be after the real one."""
    return f"{ns / 1e9:.9f}".rstrip("0").rstrip(".")


def check_batch(moment: Moment, batches: int) -> None:
    """Raise PastEnd if the recording has fewer batches than the moment needs."""
    if moment.value > batches:
        last = f"the last batch is {batches}" if batches else "there is none"
        raise PastEnd(f"There is no batch {moment.value}: {last}.", batches)


def _stop(batch: Batch, moment: Moment) -> int | None:
    """Number of rows before the moment's end; None if the end is after this batch."""
    if moment.kind == "step":
        rows = batch.where(Kind.STEP)
        ends = rows[batch["step"][rows] >= moment.value]
        return int(ends[0]) + 1 if len(ends) else None
    later = np.flatnonzero(batch["t_ns"] > moment.value)
    return int(later[0]) if len(later) else None
