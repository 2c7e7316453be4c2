"""What came of the limits of one test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memscope.analysis.limits.limits import Limit, Verdict
    from memscope.analysis.limits.machine_class import MachineClass
    from memscope.analysis.metrics.figure import Figure
    from memscope.analysis.timeline.timeline import Timeline
    from memscope.pytest_plugin.comparison import Expectation

    Compare = Callable[[MachineClass], Expectation]


@dataclass(frozen=True, slots=True)
class Judgement:
    """``own`` verdicts are on limits of the test, ``shared`` on those of the session.

    ``figures`` are medians over repetitions, ``values`` what each repetition had. ``missing`` says
    what the baseline lacks, ``unmeasured`` why nothing could be judged at all.
    """

    own: tuple[Verdict, ...] = ()
    shared: tuple[Verdict, ...] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)
    values: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    machine: MachineClass | None = None
    warnings: tuple[str, ...] = ()
    missing: str | None = None
    unmeasured: str | None = None

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return (*self.own, *self.shared)

    @property
    def broken(self) -> tuple[Verdict, ...]:
        return _only(self.verdicts, "fail")

    @property
    def near(self) -> tuple[Verdict, ...]:
        """Within the limit, and past where it warns."""
        return _only(self.verdicts, "warn")

    @property
    def unjudged(self) -> tuple[Verdict, ...]:
        """What could not be measured; what does not apply as well, where nothing else was judged.

        A test that measured nothing has shown nothing.
        """
        if _only(self.own, "pass", "warn", "fail"):
            return _only(self.own, "not measured")
        return self.own

    def typical_run(self, figure: str) -> int:
        """The repetition whose value of ``figure`` is nearest to the median."""
        median, values = self.figures[figure].value, self.values[figure]
        distance = {
            run: abs(value - median)
            for run, value in enumerate(values)
            if value is not None and median is not None
        }
        return min(distance, key=lambda run: distance[run], default=0)


def judge_recordings(
    paths: Sequence[Path],
    own: tuple[Limit, ...],
    shared: tuple[Limit, ...],
    compare: Compare,
) -> Judgement:
    """The verdicts on the median of what was measured. ``compare`` gives more own limits."""
    from memscope.analysis.limits.machine_class import find_machine_class
    from memscope.analysis.metrics.measure import measure
    from memscope.analysis.metrics.median import median_figures

    timelines = [_read(path) for path in paths]
    machine = find_machine_class(timelines[-1])
    expected = compare(machine)
    own = (*own, *expected.limits)
    measured = [measure(timeline, (*own, *shared)) for timeline in timelines]
    figures = median_figures(measured)
    return Judgement(
        own=_judge(figures, own),
        shared=_judge(figures, shared),
        figures=figures,
        values={name: _values(measured, name) for name in figures},
        machine=machine,
        warnings=expected.warnings,
        missing=expected.missing,
    )


def read_figures(path: Path, limits: tuple[Limit, ...] = ()) -> dict[str, Figure]:
    """Figures of one recording, which may still be growing."""
    from memscope.analysis.metrics.measure import measure

    return measure(_read(path), limits)


def _read(path: Path) -> Timeline:
    from memscope.analysis.timeline.timeline import read_timeline
    from memscope.reader.recording import Recording

    with Recording(path) as recording:
        return read_timeline(recording)


def _values(measured: Sequence[Mapping[str, Figure]], name: str) -> tuple[float | None, ...]:
    return tuple(figures[name].value if name in figures else None for figures in measured)


def _judge(figures: Mapping[str, Figure], limits: tuple[Limit, ...]) -> tuple[Verdict, ...]:
    from memscope.analysis.limits.limits import judge

    if not limits:
        return ()
    return tuple(verdict for verdict in judge(figures, limits) if verdict.is_named)


def _only(verdicts: tuple[Verdict, ...], *kinds: str) -> tuple[Verdict, ...]:
    return tuple(verdict for verdict in verdicts if verdict.verdict in kinds)
