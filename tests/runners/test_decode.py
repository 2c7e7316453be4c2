"""Where a weight is never changes a result; and the recording tells where each one was."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from memscope.analysis.summary.summary import Summary, summarize
from memscope.analysis.timeline.read import read_timeline
from memscope.analysis.timeline.timeline import Timeline
from memscope.errors import MemscopeError, OutOfMemory
from memscope.events import Kind
from memscope.reader.recording import Recording
from memscope.recorder.recorder import Recorder
from memscope_runners.checkpoint.fetch import open_model
from memscope_runners.decode import decode, prepare
from memscope_runners.decoder import Decoded, Decoder
from memscope_runners.memory.cuda_device import CudaDevice
from memscope_runners.q8.weights import CheckpointSource
from memscope_runners.settings import Settings
from tests.runners.decode_cases import outcome, windows

PROMPT = "The capital of France is"
ALLOCATORS, UNITS, SWITCHES = ("naive", "pool"), ("slab", "entry"), (False, True)


@pytest.fixture(scope="module")
def tiny() -> CheckpointSource:
    return open_model("synthetic:tiny")


@pytest.fixture(scope="module")
def real() -> CheckpointSource:
    try:
        return open_model(None)
    except MemscopeError as error:
        pytest.skip(f"the real model cannot be had: {error}")


def run(
    checkpoint: CheckpointSource, settings: Settings, path: Path, max_tokens: int
) -> tuple[Decoded, Timeline, Summary]:
    """Decodes with poisoned evictions, and checks the device's own count of bytes."""
    request = prepare(checkpoint, PROMPT, settings, max_tokens=max_tokens, ignore_eos=True)
    tokens = len(request.prompt_ids) + max_tokens
    with Recorder(path, force=True) as recorder:
        decoder = Decoder(checkpoint, replace(settings, poison=True), tokens, recorder)
        decoded = decoder.generate(request.prompt_ids, max_tokens=max_tokens, ignore_eos=True)
        decoder.close()
    with Recording(path) as recording:
        uploaded = sum(
            int(batch["bytes"][batch.where(Kind.UPLOAD)].sum()) for batch in recording.batches()
        )
        timeline = read_timeline(recording)
        summary = summarize(timeline, recording.state)
    assert uploaded == decoder.device.copied_bytes
    assert decoder.device.allocated_bytes == 0
    return decoded, timeline, summary


def value(summary: Summary, name: str) -> float | None:
    return summary.metrics[name].value


@pytest.mark.slow
def test_no_setting_changes_a_bit_of_the_tiny_model(tiny: CheckpointSource, tmp_path: Path) -> None:
    expected = None
    for policy, keep in windows(tiny.config.layers):
        for allocator, unit, prefetch in itertools.product(ALLOCATORS, UNITS, SWITCHES):
            settings = Settings(policy, keep, allocator, unit, prefetch)
            decoded, _, _ = run(tiny, settings, tmp_path / "run.mscope", 6)
            expected = expected or outcome(decoded)
            assert outcome(decoded) == expected, settings


@pytest.mark.parametrize(("policy", "keep"), list(windows(6)))
def test_the_table_of_policies(
    tiny: CheckpointSource, tmp_path: Path, policy: str, keep: int | None
) -> None:
    settings = Settings(policy, keep, prefetch=False)
    _, _, summary = run(tiny, settings, tmp_path / "run.mscope", 6)
    layers, k = 6, keep or 6
    uploads, held, peak = {
        "off": (0, layers, layers),
        "past": (layers - k, k, min(2 * k, layers)),
        "symmetric": (layers - max(k - layers + 2, 0), k, k),
        "lru": (layers if k < layers else 0, k, k),
        "pinned": ((layers - k + 2 if k > 2 else layers) if k < layers else 0, k, k),
    }[policy]
    assert value(summary, "residency.uploads_per_step") == uploads
    assert value(summary, "residency.entries_at_step_end") == 7 * held + 1
    assert value(summary, "residency.peak_entries") == 7 * peak + 1
    assert value(summary, "residency.peak_layers") == peak


@pytest.mark.parametrize(("unit", "calls"), [("slab", 2), ("entry", 14)])
def test_naive_calls_the_driver_for_each_layer_moved(
    tiny: CheckpointSource, tmp_path: Path, unit: str, calls: int
) -> None:
    settings = Settings("past", 2, "naive", unit)
    _, _, summary = run(tiny, settings, tmp_path / "run.mscope", 6)
    assert value(summary, "driver.calls_per_step") == calls * (6 - 2)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("prefetch", SWITCHES)
@pytest.mark.parametrize(("policy", "keep"), list(windows(6)))
def test_the_pool_makes_no_driver_call_from_the_third_step_on(
    tiny: CheckpointSource, tmp_path: Path, policy: str, keep: int, prefetch: bool, unit: str
) -> None:
    settings = Settings(policy, keep, "pool", unit, prefetch)
    _, _, summary = run(tiny, settings, tmp_path / "run.mscope", 6)
    assert value(summary, "driver.calls_per_step") == 0
    assert value(summary, "pool.hit_rate") in (1.0, None)


def test_a_preloaded_run_gives_what_a_lazy_one_does(tiny: CheckpointSource, tmp_path: Path) -> None:
    runs = []
    for preload in SWITCHES:
        settings = Settings("past", 2, preload=preload)
        runs.append(outcome(run(tiny, settings, tmp_path / "run.mscope", 6)[0]))
    assert runs[0] == runs[1]


def test_a_window_skips_the_preload_of_what_it_would_evict(
    tiny: CheckpointSource, tmp_path: Path
) -> None:
    lazy = run(tiny, Settings("past", 2, preload=False), tmp_path / "a.mscope", 4)[1]
    early = run(tiny, Settings("past", 2, preload=True), tmp_path / "b.mscope", 4)[1]
    assert early.steps.uploads[0] == lazy.steps.uploads[0]
    assert early.steps.evictions[0] == lazy.steps.evictions[0]


def test_a_limit_too_small_is_an_oom_with_its_metrics(
    tiny: CheckpointSource, tmp_path: Path
) -> None:
    settings = Settings(device_limit_bytes=900_000)
    request = prepare(tiny, PROMPT, settings, max_tokens=4)
    with (
        Recorder(tmp_path / "run.mscope") as recorder,
        pytest.raises(OutOfMemory, match=r"keep ≤ \d fits under --policy past"),
    ):
        decode(request, recorder=recorder)
    with Recording(tmp_path / "run.mscope") as recording:
        timeline = read_timeline(recording)
        assert recording.state.name == "complete"
    assert len(timeline.ooms) == 1
    assert timeline.ooms[0].counters["limit"] == 900_000
    assert 0 < timeline.ooms[0].counters["allocated"] <= 900_000


def test_the_keep_that_the_oom_names_does_fit(tiny: CheckpointSource, tmp_path: Path) -> None:
    settings = Settings(device_limit_bytes=900_000)
    with pytest.raises(OutOfMemory, match=r"keep ≤ (\d)") as caught:
        decode(prepare(tiny, PROMPT, settings, max_tokens=4))
    keep = int(str(caught.value).split("keep ≤ ")[1][0])
    fitting = replace(settings, policy="past", keep=keep)
    assert run(tiny, fitting, tmp_path / "run.mscope", 4)[0].token_ids
    with pytest.raises(OutOfMemory):
        run(tiny, replace(fitting, keep=keep + 1), tmp_path / "run.mscope", 4)


@pytest.mark.slow
@pytest.mark.model
def test_no_setting_changes_a_bit_of_the_real_model(real: CheckpointSource, tmp_path: Path) -> None:
    path, layers, tokens = tmp_path / "run.mscope", real.config.layers, 64
    expected = outcome(run(real, Settings(), path, tokens)[0])
    for settings in pairwise_settings():
        assert outcome(run(real, settings, path, tokens)[0]) == expected, settings
    for keep in range(1, layers + 1):
        short = run(real, Settings("past", keep), path, 8)[0]
        assert outcome(short) == (expected[0][:8], expected[1][:8]), keep


def pairwise_settings() -> list[Settings]:
    """Runs in which every two settings of different options meet at least once."""
    options = (
        ("past", "symmetric", "pinned"),
        (29, 20, 12, 4, 1),
        ALLOCATORS,
        UNITS,
        SWITCHES,
    )
    pairs = {
        (i, a, j, b)
        for i, j in itertools.combinations(range(len(options)), 2)
        for a, b in itertools.product(options[i], options[j])
    }
    chosen = []
    while pairs:
        best = max(itertools.product(*options), key=lambda one: len(pairs & pairs_of(one)))
        pairs -= pairs_of(best)
        chosen.append(Settings(*best))  # type: ignore[arg-type]
    return chosen


def pairs_of(one: tuple[object, ...]) -> set[tuple[int, object, int, object]]:
    return {(i, one[i], j, one[j]) for i, j in itertools.combinations(range(len(one)), 2)}


@pytest.mark.model
@pytest.mark.parametrize("keep", [29, 20, 12, 4, 1])
def test_the_table_of_policies_on_the_real_model(
    real: CheckpointSource, tmp_path: Path, keep: int
) -> None:
    _, _, summary = run(real, Settings("past", keep, prefetch=False), tmp_path / "a.mscope", 4)
    assert value(summary, "residency.uploads_per_step") == 30 - keep
    assert value(summary, "residency.entries_at_step_end") == 7 * keep + 1
    assert value(summary, "residency.peak_entries") == 7 * min(2 * keep, 30) + 1


@pytest.mark.model
def test_a_pool_that_overflows_really_frees(real: CheckpointSource, tmp_path: Path) -> None:
    settings = Settings("past", 29, unit="entry", prefetch=False)
    _, timeline, _ = run(real, settings, tmp_path / "run.mscope", 4)
    assert timeline.counts.get("pool_overflow", 0) > 0


def test_memory_of_the_host_that_ran_out_is_not_said_of_the_gpu() -> None:
    said = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes."
    decoder = object.__new__(Decoder)
    decoder.device = object.__new__(CudaDevice)
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"), decoder._reporting_oom(0):
        raise RuntimeError(said)
