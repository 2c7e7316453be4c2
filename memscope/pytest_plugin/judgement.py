"""The verdicts on the limits of one test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from memscope.analysis.limits.limits import Outcome

if TYPE_CHECKING:
    from memscope.analysis.limits.limits import Limit, Verdict
    from memscope.analysis.limits.machine_class import MachineClass
    from memscope.analysis.metrics.metric import Metric
    from memscope.analysis.timeline.timeline import Timeline
    from memscope.pytest_plugin.session_baseline import Expectation

    Compare = Callable[[MachineClass], Expectation]


@dataclass(frozen=True, slots=True)
class Judgement:
    """``own`` verdicts are on the test's limits, ``shared`` ones on those of the session.

    ``metrics`` are medians over the repetitions, ``values`` the value of each repetition.
    ``missing`` says what the baseline lacks, ``unmeasured`` why no limit could be checked.
    """

    own: tuple[Verdict, ...] = ()
    shared: tuple[Verdict, ...] = ()
    metrics: Mapping[str, Metric] = field(default_factory=dict)
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
        return _only(self.verdicts, Outcome.FAIL)

    @property
    def near(self) -> tuple[Verdict, ...]:
        """Verdicts within the limit but past its warning level."""
        return _only(self.verdicts, Outcome.WARN)

    @property
    def unjudged(self) -> tuple[Verdict, ...]:
        """Own limits that could not be measured.

        If nothing else was checked, also those that do not apply: a test that measured nothing
        has shown nothing.
        """
        if _only(self.own, Outcome.PASS, Outcome.WARN, Outcome.FAIL):
            return _only(self.own, Outcome.NOT_MEASURED)
        return self.own

    def typical_run(self, metric: str) -> int:
        """Index of the repetition whose value of ``metric`` is nearest to the median."""
        median, values = self.metrics[metric].value, self.values[metric]
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
    """Judge the medians over ``paths``. ``compare`` adds own limits from the baseline."""
    from memscope.analysis.limits.machine_class import find_machine_class
    from memscope.analysis.metrics.measure import measure
    from memscope.analysis.metrics.median import median_metrics

    timelines = [_read(path) for path in paths]
    machine = find_machine_class(timelines[-1])
    expected = compare(machine)
    own = (*own, *expected.limits)
    measured = [measure(timeline, (*own, *shared)) for timeline in timelines]
    metrics = median_metrics(measured)
    return Judgement(
        own=_judge(metrics, own),
        shared=_judge(metrics, shared),
        metrics=metrics,
        values={name: _values(measured, name) for name in metrics},
        machine=machine,
        warnings=expected.warnings,
        missing=expected.missing,
    )


def read_metrics(path: Path, limits: tuple[Limit, ...] = ()) -> dict[str, Metric]:
    """The metrics of one recording. It may still be growing."""
    from memscope.analysis.metrics.measure import measure

    return measure(_read(path), limits)


def _read(path: Path) -> Timeline:
    from memscope.analysis.timeline.read import read_timeline
    from memscope.reader.recording import Recording

    with Recording(path) as recording:
        return read_timeline(recording)


def _values(measured: Sequence[Mapping[str, Metric]], name: str) -> tuple[float | None, ...]:
    return tuple(metrics[name].value if name in metrics else None for metrics in measured)


def _judge(metrics: Mapping[str, Metric], limits: tuple[Limit, ...]) -> tuple[Verdict, ...]:
    from memscope.analysis.limits.limits import judge

    if not limits:
        return ()
    return tuple(verdict for verdict in judge(metrics, limits) if verdict.is_named)


def _only(verdicts: tuple[Verdict, ...], *outcomes: Outcome) -> tuple[Verdict, ...]:
    return tuple(verdict for verdict in verdicts if verdict.verdict in outcomes)
