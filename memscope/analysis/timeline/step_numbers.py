"""Step numbers as the program counts them: its first step is step 0.

The recorder numbers all steps. Before the first optimizer step of a training loop, each second is a
step. These steps get negative numbers here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from memscope.analysis.timeline.steps import MAX_STEPS
from memscope.events import Kind
from memscope.facts import Fact, RunKind, StepSource
from memscope.format.batch import Batch

Numbers = npt.NDArray[np.int64]
LAST_NUMBER = (1 << 63) - 1  # the largest that a column holds


class StepKind(StrEnum):
    """What counts as a step."""

    OPTIMIZER = "optimizer"  # a call of an optimizer's step
    FORWARD = "forward"  # an outermost forward of a model
    SECOND = "second"  # one second, because the program shows no steps
    MARKED = "marked"  # marked by the program
    DECODE = "decode"  # one token of our runner; step 0 is the prefill


@dataclass(frozen=True, slots=True)
class StepCounts:
    """The number of steps that have ended.

    ``ended``: steps of ``kind``, which is None if the recording does not say; the first ``warmup``
    of them are warm-up. ``ignored``: earlier steps of other kinds.
    """

    kind: StepKind | None
    ended: int
    warmup: int
    ignored: int


class StepSourceFold:
    """Follows the fact that says what counts as a step."""

    def __init__(self) -> None:
        self.source: Any = None
        self.other_steps = 0  # steps that had ended when ``source`` took over
        self.since_ns = 0  # time when ``source`` took over

    def change(self, source: object, t_ns: int, ended: int) -> None:
        """Steps come from ``source`` after ``t_ns``, when ``ended`` steps have ended."""
        if source != self.source:
            self.source, self.since_ns, self.other_steps = source, t_ns, ended


def step_kind(source: object, facts: dict[str, Any]) -> StepKind | None:
    """The kind of steps that ``source`` makes in a run with these ``facts``."""
    if source == StepSource.WATCH:
        watch = facts.get(Fact.WATCH)
        is_optimizer = isinstance(watch, dict) and watch.get("step") == "optimizer.step"
        return StepKind.OPTIMIZER if is_optimizer else StepKind.FORWARD
    if source == StepSource.MARKED:
        is_decode = facts.get(Fact.RUN_KIND) == RunKind.DECODE
        return StepKind.DECODE if is_decode else StepKind.MARKED
    kinds: dict[object, StepKind] = {
        StepSource.SECOND: StepKind.SECOND,
        StepSource.FORWARD: StepKind.FORWARD,
        StepSource.OPTIMIZER: StepKind.OPTIMIZER,
    }
    return kinds.get(source) if isinstance(source, str) else None


def first_own_number(recorded: Numbers, other_steps: int) -> int:
    """Recorded number of step 0. ``recorded``: the numbers of all steps, in order."""
    if not other_steps or not len(recorded):
        return 0
    if len(recorded) > other_steps:
        return int(recorded[other_steps])
    return min(int(recorded[-1]) + 1, LAST_NUMBER)


def find_first_own(batches: Iterable[Batch]) -> int:
    """Recorded number of step 0 in a whole recording."""
    fold, ended, numbers = StepSourceFold(), 0, []
    for batch in batches:
        ends = batch.where(Kind.STEP)
        for row in batch.where(Kind.FACT).tolist():
            if batch.name(row) == Fact.STEP_SOURCE:
                before = ended + int(np.searchsorted(ends, row))
                fold.change(batch.data(row), int(batch["t_ns"][row]), before)
        numbers.append(batch["step"][ends][: max(MAX_STEPS - ended, 0)])
        ended += len(ends)
    recorded = np.sort(np.concatenate(numbers)) if numbers else np.empty(0, dtype=np.int64)
    return first_own_number(recorded, fold.other_steps)
