"""A followed model: its steps, its layers, what it holds, and that it runs as without us."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memscope
from memscope.errors import MemscopeError
from memscope.events import Kind
from memscope.probes.pace import StepPace, TimePace
from memscope.probes.watch.model_bytes import ModelBytes
from memscope.probes.watch.model_layers import find_layers
from memscope.probes.watch.watch import Watch, watch
from memscope.reader.recording import open_recording
from memscope.recorder.recorder import Recorder

torch = pytest.importorskip("torch")

LAYERS = 3


class Body(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(LAYERS))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = Body()
        self.fails = False

    def forward(self, x: Any) -> Any:
        for layer in self.model.layers:
            x = layer(x)
        if self.fails:
            raise ValueError("the program's own")
        return x


class FakeCounters:
    """Each reading allocates one byte more; the register of the peak stands at 10 at first."""

    def __init__(self) -> None:
        self.allocated, self.peak, self.resets = 0, 10, 0

    def read(self, device: int) -> tuple[int, int, int]:
        self.allocated += 1
        self.peak = max(self.peak, self.allocated)
        return self.allocated, 100, self.peak

    def reset_peak(self, device: int) -> None:
        self.resets += 1
        self.peak = self.allocated


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with Recorder(tmp_path / "run.mscope") as recorder:
        yield recorder


def rows(recorder: Recorder) -> list[dict[str, Any]]:
    """Every event of a closed recording as a dict."""
    recorder.close()
    with open_recording(recorder.path) as recording:
        return [row for batch in recording.batches() for row in batch.record.to_pylist()]


def of(found: list[dict[str, Any]], kind: int) -> list[dict[str, Any]]:
    return [row for row in found if row["kind"] == kind]


def on_gpu(model: Any) -> Any:
    """The model's layers as if they lay on a GPU."""
    found = find_layers(model, "model.layers")
    return tuple(dataclasses.replace(layer, device=0) for layer in found)


def run(model: Any, times: int = 4) -> None:
    for _ in range(times):
        model(torch.ones(1, 4))


def layer_samples(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in of(found, Kind.SAMPLE) if (row["name"] or "").startswith("torch.")]


def test_a_step_is_an_outermost_forward(recorder):
    model = Model()
    watch(model, recorder=recorder)
    run(model)
    steps = of(rows(recorder), Kind.STEP)
    assert [row["step"] for row in steps] == [0, 1, 2, 3]
    assert all(row["duration_ns"] > 0 for row in steps)


def test_a_step_is_an_optimizers_where_one_is_given(recorder):
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    watch(model, optimizer=optimizer, recorder=recorder)
    for _ in range(3):
        for _ in range(2):  # accumulates
            model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
    found = rows(recorder)
    steps = of(found, Kind.STEP)
    assert [row["step"] for row in steps] == [0, 1, 2]
    starts = [row["t_ns"] - row["duration_ns"] for row in steps]
    assert starts[1] >= steps[0]["t_ns"] - 1_000_000  # no gap and no overlap
    held = {row["name"]: row["bytes"] for row in of(found, Kind.SAMPLE)}
    assert held["model.weights_bytes"] == held["model.gradients_bytes"] == LAYERS * 20 * 4
    assert held["model.optimizer_bytes"] >= 2 * LAYERS * 20 * 4  # two moments a weight


def test_steps_that_the_program_marks_count(recorder):
    model = Model()
    watch(model, recorder=recorder)
    for _ in range(2):
        with recorder.step():
            run(model, 3)
    assert [row["step"] for row in of(rows(recorder), Kind.STEP)] == [0, 1]


def test_boundaries_of_one_forward_in_n_are_read(recorder):
    model, counters = Model(), FakeCounters()
    watching = Watch(recorder, model, on_gpu(model), counters=counters)
    run(model, 3)
    samples = layer_samples(rows(recorder))
    assert [row["layer"] for row in samples[::3]] == [-1, 0, 1, 2]
    assert {row["step"] for row in samples} == {2}, "the first two forwards warm up"
    allocated = [row["bytes"] for row in samples if row["name"] == "torch.allocated_bytes"]
    assert allocated == [1, 2, 3, 4]
    assert watching.pace.every >= 1


def test_how_often_is_recorded_with_its_cost(recorder):
    model = Model()
    Watch(recorder, model, on_gpu(model), counters=FakeCounters())
    run(model, 40)
    facts = [row for row in of(rows(recorder), Kind.FACT) if row["name"] == "watch.pace"]
    assert facts
    assert '"every"' in facts[-1]["data"]
    assert '"cost_ns"' in facts[-1]["data"]


@pytest.mark.parametrize(("resets", "count"), [(False, 0), (True, LAYERS + 1)])
def test_the_peak_register_is_reset_only_where_asked_for(recorder, resets, count):
    model, counters = Model(), FakeCounters()
    Watch(recorder, model, on_gpu(model), counters=counters, resets_peaks=resets)
    run(model, 3)
    assert counters.resets == count


def test_a_model_over_two_devices_is_read_before_each(recorder):
    model = Model()
    layers = on_gpu(model)
    layers = (*layers[:2], dataclasses.replace(layers[2], device=1))
    Watch(recorder, model, layers, counters=FakeCounters())
    run(model, 3)
    samples = layer_samples(rows(recorder))[::3]
    read = [(row["layer"], row["device"]) for row in samples]
    assert read == [(-1, 0), (0, 0), (1, 0), (-1, 1), (2, 1)]


def test_an_error_of_the_program_is_its_own(recorder):
    model = Model()
    watch(model, recorder=recorder)
    model.fails = True
    with pytest.raises(ValueError, match="the program's own"):
        run(model, 1)
    model.fails = False
    run(model, 1)
    assert [row["step"] for row in of(rows(recorder), Kind.STEP)] == [0, 1]


def test_a_fault_of_ours_ends_the_watching_alone(recorder):
    class Broken(FakeCounters):
        def read(self, device: int) -> tuple[int, int, int]:
            raise RuntimeError("no counter")

    model = Model()
    Watch(recorder, model, on_gpu(model), counters=Broken())
    run(model, 5)
    assert not model.model.layers[0]._forward_hooks
    assert not model._forward_hooks
    facts = {row["name"]: row["data"] for row in of(rows(recorder), Kind.FACT)}
    assert "no counter" in facts["probe.watch"]


def test_closing_leaves_nothing_on_the_model(recorder):
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer=optimizer, recorder=recorder):
        run(model, 1)
    hooked = [module for module in model.modules() if module._forward_hooks]
    assert not hooked
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert not optimizer._optimizer_step_post_hooks


def test_a_deleted_model_gives_its_memory_back_at_once(recorder):
    model = Model()
    watching = watch(model, recorder=recorder)
    run(model, 3)
    alive = weakref.ref(model.model.layers[0].weight)
    gc.disable()
    try:
        del model
        assert alive() is None
    finally:
        gc.enable()
        watching.close()


def test_without_a_recorder_nothing_is_done():
    model = Model()
    watch(model)
    assert not model._forward_hooks


def test_an_unknown_list_of_layers_names_those_there_are(recorder):
    with pytest.raises(MemscopeError, match=r"model\.layers"):
        watch(Model(), layers="blocks", recorder=recorder)


def test_the_default_falls_back_to_the_longest_list():
    class Other(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.h = torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(5))
            self.few = torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(2))

    found = find_layers(Other(), "model.layers")
    assert [layer.name for layer in found] == [f"h.{number}" for number in range(5)]


def test_layers_below_a_wrapper_are_found():
    wrapped = torch.nn.Sequential()
    wrapped.add_module("module", Model())
    assert find_layers(wrapped, "model.layers")[0].name == "module.model.layers.0"


@pytest.mark.parametrize("in_place", [True, False])
def test_a_compiled_model_has_steps_and_says_what_is_unseen(recorder, in_place):
    model: Any = Model()
    if in_place:
        model.compile(backend="eager")
    else:
        model = torch.compile(model, backend="eager")
    watching = watch(model, recorder=recorder)
    expected = Model()
    expected.load_state_dict(model.state_dict() if in_place else model._orig_mod.state_dict())
    got = model(torch.ones(1, 4))
    assert torch.equal(got, expected(torch.ones(1, 4)))
    run(model, 2)
    watching.close()
    run(model, 1)
    found = rows(recorder)
    assert [row["step"] for row in of(found, Kind.STEP)] == [0, 1, 2]
    facts = {row["name"]: row["data"] for row in of(found, Kind.FACT)}
    assert "torch.compile" in facts["watch"]


def test_a_model_inside_a_compiled_function_is_unseen_and_unharmed(recorder):
    model = Model()
    watching = watch(model, recorder=recorder)
    compiled = torch.compile(lambda x: model(x) * 2, backend="eager", fullgraph=True)
    assert torch.equal(
        compiled(torch.ones(1, 4)),
        model.model.layers[2](model.model.layers[1](model.model.layers[0](torch.ones(1, 4)))) * 2,
    )
    watching.close()
    facts = {row["name"]: row["data"] for row in of(rows(recorder), Kind.FACT)}
    assert "inside torch.compile" in facts["probe.watch"]


def test_a_result_is_unchanged_by_watching(recorder):
    model = Model()
    plain = model(torch.ones(1, 4))
    Watch(recorder, model, on_gpu(model), counters=FakeCounters())
    for _ in range(5):
        assert torch.equal(model(torch.ones(1, 4)), plain)


def test_tied_weights_count_once():
    model = Model()
    model.model.layers[1].weight = model.model.layers[0].weight
    sizes = ModelBytes(model).read()["model.weights_bytes"]
    assert sizes == {-1: (2 * 16 + 3 * 4) * 4}


def test_sizes_are_counted_anew_when_gradients_come_and_go():
    model = Model()
    sizes = ModelBytes(model)
    assert sizes.read()["model.gradients_bytes"] == {}
    model(torch.ones(1, 4)).sum().backward()
    assert sizes.read()["model.gradients_bytes"] == {-1: LAYERS * 20 * 4}
    model.zero_grad()
    assert sizes.read()["model.gradients_bytes"] == {}


@pytest.mark.parametrize("cost_ns", [1_000, 100_000, 3_000_000])
def test_readings_cost_their_share(cost_ns):
    pace, step_ns, now, read, steps = StepPace(0.01), 1_000_000, 0, 0, 20_000
    for _ in range(steps):
        if pace.start_step(now):
            pace.end_read(cost_ns)
            now += cost_ns
            read += 1
        now += step_ns
    assert read * cost_ns / now <= 0.011
    assert read >= 0.8 * min(steps, 0.01 * steps * step_ns / cost_ns)


def test_step_ends_are_read_at_most_twenty_times_a_second():
    pace, read = TimePace(), 0
    for now in range(0, 2_000_000_000, 1_000_000):
        if pace.is_due(now):
            pace.end_read(now, 1_000)
            read += 1
    assert 38 <= read <= 41


def test_memscope_offers_it():
    assert memscope.watch is watch


def test_steps_of_the_wrapper_give_way_to_those_of_watch(tmp_path):
    from memscope.probes.watch.steps import StepProbe

    with Recorder(tmp_path / "run.mscope", probes=(StepProbe(),)) as recorder:
        model = Model()
        watch(model, recorder=recorder)
        run(model, 5)
    found = rows(recorder)
    sources = [row["data"] for row in of(found, Kind.FACT) if row["name"] == "run.step_source"]
    assert sources[-1] == '"watch"'
    assert len(of(found, Kind.STEP)) >= 5
