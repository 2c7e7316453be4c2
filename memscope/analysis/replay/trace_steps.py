"""Where steps begin in a trace: from the user's labels, `record_function` ranges, or allocations.

Labels with a number are steps ("step 12") if the number rises once, and parts of a step ("layer 3")
if it starts over. Without labels or ranges, steps begin at an allocation that recurs and is freed
before it recurs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memscope.interop.snapshot.snapshot import Annotation
from memscope.interop.snapshot.trace import ALLOC, FREE_REQUESTED, Trace

Numbers = npt.NDArray[np.int64]

LEAST_STEPS = 4
LEAST_INFERRED_STEPS = 10
_NUMBER = re.compile(r"(.*?)(\d{1,18})(\D*)", re.S)
_STEP_WORD = re.compile(r"step|iter|epoch|batch|request|forward", re.I)


@dataclass(frozen=True, slots=True)
class TraceSteps:
    """``starts``: the first event of each step. ``source``: what marks the steps, in words.

    ``is_named``: the user named the steps; otherwise they are inferred from allocations.
    """

    source: str
    starts: Numbers
    is_named: bool

    def __len__(self) -> int:
        return len(self.starts)


def find_steps(trace: Trace, annotations: Sequence[Annotation], device: int) -> TraceSteps | None:
    """The steps of a trace; None if nothing marks them."""
    return (
        _steps_of_labels(trace)
        or _steps_of_annotations(trace, annotations, device)
        or _steps_of_allocations(trace)
    )


def _steps_of_labels(trace: Trace) -> TraceSteps | None:
    """Steps from the label prefix with the most numbers."""
    parts = [_NUMBER.fullmatch(label) for label in trace.labels]
    names = Counter(match[1] for match in parts if match)
    for name, count in names.most_common(3):
        if count < LEAST_STEPS:
            break
        number = np.array(
            [int(match[2]) if match and match[1] == name else -1 for match in parts],
            dtype=np.int64,
        )
        of_event = number[trace.label]
        rows = np.flatnonzero(of_event >= 0)
        starts = rows[_turns(of_event[rows])]
        if len(starts) >= LEAST_STEPS:
            return TraceSteps(f"user metadata {name.strip() + ' N'!r}", starts, True)
    return None


def _turns(numbers: Numbers) -> Numbers:
    """Where steps begin in a sequence of numbers: at each new highest one, or at each restart."""
    lowest_last = np.flatnonzero(numbers == numbers.min())[-1]
    highest_first = int(numbers.argmax())
    if lowest_last > highest_first:
        falls = np.flatnonzero(numbers[1:] < numbers[:-1]) + 1
        return np.concatenate([[0], falls])
    highest = np.maximum.accumulate(numbers)
    return np.concatenate([[0], np.flatnonzero(highest[1:] > highest[:-1]) + 1])


def _steps_of_annotations(
    trace: Trace, annotations: Sequence[Annotation], device: int
) -> TraceSteps | None:
    """Steps from a range that recurs. Ranges named after steps go first."""
    if not len(trace) or (trace.time_us < 0).any():
        return None
    times: dict[str, list[int]] = {}
    for each in annotations:
        if each.is_start and each.device in (device, -1):
            times.setdefault(re.sub(r"\d+", "N", each.name), []).append(each.time_us)
    names = sorted(times, key=lambda name: (not _STEP_WORD.search(name), -len(times[name])))
    for name in names[:3]:
        rows = np.searchsorted(trace.time_us, np.array(sorted(times[name]), dtype=np.int64))
        starts = np.unique(rows[rows < len(trace)])
        if len(starts) >= LEAST_STEPS:
            return TraceSteps(f"ranges of record_function {name!r}", starts, True)
    return None


def _steps_of_allocations(trace: Trace) -> TraceSteps | None:
    """Steps from the largest allocation that recurs, is freed each time, and spans all."""
    rows = trace.where(ALLOC)
    if len(rows) < LEAST_INFERRED_STEPS:
        return None
    keys = np.stack([trace.stack[rows], trace.bytes[rows]], axis=1)
    distinct, group, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    group = group.reshape(-1)
    recurring = np.flatnonzero(count >= LEAST_INFERRED_STEPS)
    for number in recurring[np.argsort(-distinct[recurring, 1], kind="stable")][:8]:
        starts = rows[group == number]
        spans = starts[-1] - starts[0] >= 0.8 * len(trace)
        if spans and _is_freed_each_turn(trace, starts):
            return TraceSteps("an allocation that recurs", starts, False)
    return None


def _is_freed_each_turn(trace: Trace, starts: Numbers) -> bool:
    """Whether each of these allocations is freed before the next one."""
    frees = trace.where(FREE_REQUESTED)
    keyed: dict[int, list[int]] = {}
    for row in frees.tolist():
        keyed.setdefault(int(trace.address[row]), []).append(row)
    for start, following in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        rows = keyed.get(int(trace.address[start]), [])
        place = int(np.searchsorted(rows, start))
        if place == len(rows) or rows[place] >= following:
            return False
    return True
