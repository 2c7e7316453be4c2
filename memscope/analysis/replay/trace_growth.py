"""Growth of allocated bytes from step to step, and who holds the memory that grows.

The slope is Theil–Sen's, of the least allocated bytes within each step, so temporary workspaces do
not count. The first step is warm-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memscope.analysis.memory_map.holders import Holder, by_stack
from memscope.analysis.memory_map.memory_map import MemoryMap, last_allocations
from memscope.analysis.replay.replay import Replay
from memscope.analysis.replay.trace_steps import TraceSteps, find_steps
from memscope.interop.snapshot.snapshot import Annotation
from memscope.interop.snapshot.trace import Trace
from memscope.interop.snapshot.values import Stacks

Numbers = npt.NDArray[np.int64]

WARMUP_STEPS = 1
LEAST_BYTES_PER_STEP = 1024
LEAST_SHARE = 0.005
LEAST_RISING = 0.2
MOST_POINTS = 512


@dataclass(frozen=True, slots=True)
class TraceGrowth:
    """Growth over a trace. ``floors``: the least bytes allocated within each step.

    ``holders``: blocks allocated after warm-up that are live at the end.
    """

    source: str
    is_named: bool
    floors: tuple[int, ...]
    bytes_per_step: float
    holders: tuple[Holder, ...]

    @property
    def steps(self) -> int:
        """Number of steps in the trace."""
        return len(self.floors)

    @property
    def grown_bytes(self) -> int:
        """Bytes by which the floor of the last step exceeds the first one after warm-up."""
        return self.floors[-1] - self.floors[WARMUP_STEPS]

    @property
    def is_growing(self) -> bool:
        """Over 1 KiB per step and 0.5 % in total, not in one jump, and still growing at the end."""
        floors = np.array(self.floors[WARMUP_STEPS:], dtype=np.int64)
        rises = float((np.diff(floors) > 0).mean())
        late = _slope(floors[len(floors) // 2 :])
        return (
            self.bytes_per_step > LEAST_BYTES_PER_STEP
            and self.grown_bytes > LEAST_SHARE * self.floors[-1]
            and rises >= LEAST_RISING
            and late >= self.bytes_per_step / 2
        )


def measure_growth(
    trace: Trace,
    played: Replay,
    end: MemoryMap,
    stacks: Stacks,
    annotations: Sequence[Annotation],
    device: int,
) -> TraceGrowth | None:
    """Growth over a trace; None if the trace shows no steps."""
    steps = find_steps(trace, annotations, device)
    if steps is None or len(steps) < WARMUP_STEPS + 3:
        return None
    floors = np.minimum.reduceat(played.allocated[1:], steps.starts)
    return TraceGrowth(
        source=steps.source,
        is_named=steps.is_named,
        floors=tuple(floors.tolist()),
        bytes_per_step=_slope(floors[WARMUP_STEPS:]),
        holders=_keepers(trace, steps, end, stacks),
    )


def _slope(values: Numbers) -> float:
    """Theil–Sen: the median slope of all pairs, from at most MOST_POINTS values."""
    if len(values) < 2:
        return 0.0
    place = np.unique(np.linspace(0, len(values) - 1, min(len(values), MOST_POINTS)).astype(int))
    first, second = np.triu_indices(len(place), k=1)
    rise = (values[place[second]] - values[place[first]]) / (place[second] - place[first])
    return float(np.median(rise))


def _keepers(trace: Trace, steps: TraceSteps, end: MemoryMap, stacks: Stacks) -> tuple[Holder, ...]:
    made = last_allocations(trace, len(trace), end.blocks.address)
    is_late = end.is_live & (made >= steps.starts[WARMUP_STEPS])
    return by_stack(end, stacks, 5, is_late)
