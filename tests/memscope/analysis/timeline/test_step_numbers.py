from pathlib import Path

import pytest

from memscope.analysis.timeline.moment import PastEnd
from memscope.analysis.timeline.read import read_timeline
from memscope.analysis.timeline.step_numbers import StepCounts, StepKind, find_first_own
from memscope.events import Kind
from memscope.reader.recording import open_recording
from tests.memscope.analysis.build import Event, event, fact, fold, make_batch
from tests.memscope.cli.recordings import write_recording

SECOND = 1_000_000_000


def training(*, seconds: int, steps: int, source: str = "optimizer") -> list[Event]:
    """Seconds before training, then steps of 1 s that go on with their numbers."""
    ends = [event(Kind.STEP, (n + 1) * SECOND, step=n) for n in range(seconds + steps)]
    told = [fact("run.step_source", "second"), fact("run.step_source", source)]
    return [told[0], *ends[:seconds], told[1], *ends[seconds:]]


def test_the_first_own_step_is_step_0() -> None:
    timeline = fold(training(seconds=14, steps=40))
    assert timeline.own_steps.step.tolist() == list(range(40))
    assert timeline.steps.step[0] == -14
    assert timeline.step_counts == StepCounts(StepKind.OPTIMIZER, 40, 1, 14)


def test_a_skipped_number_does_not_move_the_first_own_step() -> None:
    rows = [fact("run.step_source", "second"), event(Kind.STEP, 1, step=0)]
    rows += [fact("run.step_source", "watch"), event(Kind.STEP, 3, step=2)]
    timeline = fold(rows)
    assert (timeline.first_own_step, timeline.own_steps.step.tolist()) == (2, [0])


def test_a_step_with_the_largest_number_leaves_the_next_one_countable() -> None:
    rows = [event(Kind.STEP, 1, step=(1 << 63) - 1), fact("run.step_source", "second")]
    timeline = fold(rows)
    assert len(timeline.steps) == 1
    assert timeline.step_counts == StepCounts(StepKind.SECOND, 0, 0, 1)


def test_errors_and_marks_have_the_number_of_their_step() -> None:
    rows = training(seconds=3, steps=2)
    rows += [event(Kind.OOM, 9 * SECOND, step=4), event(Kind.MARK, step=4, name="saved")]
    rows.insert(1, event(Kind.MARK, step=0, name="imported"))
    timeline = fold(rows)
    assert timeline.ooms[0].step == 1
    assert [mark.step for mark in timeline.marks] == [-1, 1]


@pytest.mark.parametrize(
    ("source", "extra", "kind"),
    [
        ("second", [], StepKind.SECOND),
        ("module", [], StepKind.FORWARD),
        ("optimizer", [], StepKind.OPTIMIZER),
        ("watch", [], StepKind.FORWARD),
        ("watch", [fact("watch", {"step": "optimizer.step"})], StepKind.OPTIMIZER),
        ("program", [], StepKind.MARKED),
        ("program", [fact("run.kind", "q8-decode")], StepKind.DECODE),
        ("another", [], None),
    ],
)
def test_kind_of_steps(source: str, extra: list[Event], kind: StepKind | None) -> None:
    rows = [*extra, fact("run.step_source", source), event(Kind.STEP, 1, step=0)]
    assert fold(rows).step_counts == StepCounts(kind, 1, 1, 0)


@pytest.mark.parametrize("split", [1, 3, 100])
@pytest.mark.parametrize(("seconds", "steps"), [(0, 2), (3, 0), (3, 2), (1, 9)])
def test_both_passes_number_alike(seconds: int, steps: int, split: int) -> None:
    rows = training(seconds=seconds, steps=steps)
    batches = [make_batch(rows[start : start + split]) for start in range(0, len(rows), split)]
    assert find_first_own(batches) == fold(rows).first_own_step == seconds


def test_at_step_counts_own_steps(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "run.mscope", training(seconds=3, steps=4))
    with open_recording(path) as recording:
        assert read_timeline(recording, at="step:1").own_steps.step.tolist() == [0, 1]
        with pytest.raises(PastEnd, match=r"no step 4: the last step is 3") as error:
            read_timeline(recording, at="step:4")
    assert error.value.last == 3
