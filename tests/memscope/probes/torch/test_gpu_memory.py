"""On a GPU: the ledger adds up, planted memory lands in its line, captures hold."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memscope
from memscope.analysis.summary.summary import Summary, summarize
from memscope.analysis.timeline.read import read_timeline
from memscope.reader.recording import open_recording
from tests.memscope.probes.torch.ledgers import assert_adds_up, read_ledger, size

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

GIB = 1 << 30
SETTLE = 1.5  # seconds, for lists of processes that are read once a second


def read_summary(path: Path) -> Summary:
    with open_recording(path) as recording:
        timeline = read_timeline(recording)
        return summarize(timeline, recording.state)


def runtime() -> Any:
    """The CUDA runtime that torch has loaded, by itself: what it takes is not torch's."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = [line.split()[-1] for line in maps if "libcudart" in line]
    return ctypes.CDLL(paths[0])


@pytest.fixture
def planted() -> Iterator[Any]:
    """Takes bytes by cudaMalloc; gives all of them back."""
    library, pointers = runtime(), []

    def plant(count: int) -> None:
        pointer = ctypes.c_void_p()
        assert library.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(count)) == 0
        pointers.append(pointer)

    yield plant
    for pointer in pointers:
        library.cudaFree(pointer)


@pytest.mark.gpu(alone=True)
def test_the_ledger_adds_up_to_what_nvml_says_is_used(tmp_path):
    path = tmp_path / "run.mscope"
    with memscope.record(path):
        weights = torch.ones(64 << 20, device="cuda")
        for _ in range(20):
            (weights * 2).sum().item()
            time.sleep(0.05)
    ledger = read_ledger(path)
    assert ledger.source.startswith("NVML")
    assert_adds_up(ledger)
    assert size(ledger, "torch.allocated") >= 256 << 20


@pytest.mark.gpu(alone=True)
def test_training_tells_weights_gradients_and_optimizer_apart(tmp_path):
    path = tmp_path / "run.mscope"
    model = torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.Linear(2048, 2048)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    with memscope.record(path):
        memscope.watch(model, layers=None, optimizer=optimizer)
        for _ in range(60):
            model(torch.ones(8, 2048, device="cuda")).sum().backward()
            optimizer.step()
            torch.cuda.synchronize()
            time.sleep(0.01)
    ledger = read_ledger(path)
    weights = sum(each.nbytes for each in model.parameters())
    assert size(ledger, "model.weights") == size(ledger, "model.gradients") == weights
    assert 2 * weights <= size(ledger, "model.optimizer") <= 2.01 * weights
    assert_adds_up(ledger)


@pytest.mark.gpu(alone=True)
def test_a_planted_allocation_is_unexplained_and_nowhere_else(tmp_path, planted):
    paths = tmp_path / "before.mscope", tmp_path / "after.mscope"
    kept = torch.ones(1 << 20, device="cuda")
    with memscope.record(paths[0]):
        time.sleep(SETTLE)
    planted(GIB)
    with memscope.record(paths[1]):
        time.sleep(SETTLE)
    before, after = map(read_ledger, paths)
    assert_adds_up(after)
    assert size(after, "process") - size(before, "process") == pytest.approx(GIB, rel=0.01)
    assert size(after, "torch") == size(before, "torch")
    del kept


@pytest.mark.gpu(alone=True)
def test_an_allocation_planted_while_recording_is_in_its_own_line(tmp_path, planted):
    path = tmp_path / "run.mscope"
    kept = torch.ones(1 << 20, device="cuda")
    with memscope.record(path):
        time.sleep(SETTLE)
        planted(GIB)
        time.sleep(SETTLE)
    ledger = read_ledger(path)
    assert size(ledger, "unexplained") == pytest.approx(GIB, rel=0.01)
    assert_adds_up(ledger)
    del kept


@pytest.mark.gpu(alone=True)
def test_another_process_has_its_own_line(tmp_path):
    path = tmp_path / "run.mscope"
    program = (
        "import sys, torch; kept = torch.ones(2 << 30, dtype=torch.uint8, device='cuda'); "
        "torch.cuda.synchronize(); print('ready', flush=True); sys.stdin.read()"
    )
    kept = torch.ones(1 << 20, device="cuda")
    with memscope.record(path):
        time.sleep(SETTLE)
        other = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        time.sleep(SETTLE)
    other.communicate()
    ledger = read_ledger(path)
    if ledger.find("process") is None:
        pytest.skip("NVML does not list this process here (a container's own numbers)")
    context = size(ledger, f"process.{other.pid}") - 2 * GIB
    assert 0 < context < GIB
    assert_adds_up(ledger)
    del kept


def test_a_capture_holds_while_everything_is_sampled(tmp_path, monkeypatch):
    """Sampling every millisecond, layers and step ends read within the capture."""
    monkeypatch.setattr("memscope.recorder.recorder.SAMPLE_SECONDS", 0.001)
    monkeypatch.setattr("memscope.probes.pace.FIRST_READ", 0)
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(64))).cuda()
    inputs = torch.ones(8, 256, device="cuda")
    with memscope.record(tmp_path / "run.mscope") as recorder, torch.inference_mode():
        expected = model(inputs)
        torch.cuda.synchronize()
        with memscope.watch(model, layers=None, recorder=recorder):
            for _ in range(20):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    time.sleep(0.01)  # the sampler comes in
                    result = model(inputs)
                graph.replay()
                torch.cuda.synchronize()
                assert torch.equal(result, expected)
    summary = read_summary(tmp_path / "run.mscope")
    assert summary.steps >= 20
    assert (summary.metrics["allocator.flushes_in_steps"].value or 0) == 0


def test_layers_are_read_within_a_capture(tmp_path):
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    model, inputs = Model().cuda(), torch.ones(2, 64, device="cuda")
    path = tmp_path / "run.mscope"
    with (
        memscope.record(path) as recorder,
        torch.inference_mode(),
        memscope.watch(model, layers="layers", recorder=recorder) as watching,
    ):
        for _ in range(2):
            expected = model(inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = model(inputs)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(result, expected)
        assert watching.pace.cost_ns > 0
    assert len(read_summary(path).layers) == 4


def test_layer_peaks_are_exact_where_asked_for(tmp_path):
    class Layer(torch.nn.Module):
        def __init__(self, count: int) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))
            self.count = count

        def forward(self, x: Any) -> Any:
            torch.empty(self.count, dtype=torch.uint8, device="cuda")
            return x * self.weight

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList((Layer(64 << 20), Layer(16 << 20)))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    model, inputs, path = Model().cuda(), torch.ones(1, device="cuda"), tmp_path / "run.mscope"
    with (
        memscope.record(path) as recorder,
        torch.inference_mode(),
        memscope.watch(model, layers="layers", recorder=recorder, layer_peaks=True),
    ):
        held = torch.cuda.memory_allocated()
        for _ in range(4):
            model(inputs)
    first, second = read_summary(path).layers
    assert not first.is_upper_bound
    assert not second.is_upper_bound
    assert first.peak_bytes - held == pytest.approx(64 << 20, rel=0.01)
    assert second.peak_bytes - held == pytest.approx(16 << 20, rel=0.01)


@pytest.mark.gpu(alone=True)
def test_a_flush_gives_back_what_it_says(tmp_path):
    path = tmp_path / "run.mscope"
    with memscope.record(path) as recorder:
        torch.ones(1, device="cuda")
        time.sleep(0.3)
        for _ in range(3):
            with recorder.step():
                torch.empty(512 << 20, dtype=torch.uint8, device="cuda")
                torch.cuda.empty_cache()
    with open_recording(path) as recording:
        timeline = read_timeline(recording)
    flushes = timeline.flushes_after(-1)
    assert flushes.count == 3
    assert flushes.mean_bytes == pytest.approx(512 << 20, rel=0.1)
    assert "test_gpu_memory.py" in flushes.caller
