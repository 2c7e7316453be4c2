"""The residency map: columns are the program's own steps."""

from __future__ import annotations

from memscope.analysis.summary.residency_map import ResidencyMapFold
from memscope.events import Kind
from memscope.facts import Fact, StepSource
from tests.memscope.analysis.build import event, fact, fold, make_batch


def test_columns_have_the_numbers_of_the_programs_own_steps() -> None:
    rows = [fact("model", {"layers": 2}), fact(Fact.STEP_SOURCE, StepSource.SECOND)]
    rows += [event(Kind.STEP, at, step=at, duration_ns=1) for at in range(3)]
    rows += [fact(Fact.STEP_SOURCE, StepSource.MARKED)]
    for at in range(3, 8):
        rows.append(event(Kind.UPLOAD, at, step=at, layer=0, bytes=1, value=7.0))
        rows.append(event(Kind.STEP, at, step=at, duration_ns=1))
    residency = ResidencyMapFold()
    residency.add(make_batch(rows, 1))
    timeline = fold(rows)
    own = timeline.own_steps.step.tolist()
    assert own == [0, 1, 2, 3, 4]
    assert residency.result(timeline).first_step.tolist()[-5:] == own
