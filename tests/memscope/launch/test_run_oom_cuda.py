"""Real out-of-memory errors on a GPU: each situation made afresh, recorded and explained."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memscope.analysis.memory_map.recorded_map import recorded_map
from memscope.analysis.timeline.read import read_timeline
from memscope.analysis.timeline.timeline import Timeline
from memscope.reader.recording import open_recording
from tests.memscope.launch.programs import PYTHON, Ended, clean_environment, record, run_process

pytestmark = pytest.mark.gpu

GIB = 1 << 30
START = """
import time, torch
GIB, MIB = 1 << 30, 1 << 20
def take(size): return torch.empty(int(size), dtype=torch.uint8, device='cuda')
def limit(size):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(size / total)
def fail(size):
    try: take(size)
    except torch.OutOfMemoryError: print(torch.cuda.memory_reserved(), flush=True); raise
take(1); time.sleep(0.3); torch.cuda.empty_cache()
"""
FRAGMENTS = """
limit(4 * GIB)
whole = take(3 * GIB); del whole
kept = [take(64 * MIB) for _ in range(48)]
del kept[::2]
"""
SITUATIONS = {
    "fragmentation": (FRAGMENTS + "fail(1.5 * GIB)", {"fragmentation"}),
    "retention under a limit": (
        "limit(4 * GIB)\nkept = [take(512 * MIB) for _ in range(7)]\nfail(GIB)",
        {"memory_fraction"},
    ),
    "too big a model": (
        "free = torch.cuda.mem_get_info()[0]\nkept = [take(free // 16) for _ in range(15)]\n"
        "fail(free // 8)",
        {"shortage"},
    ),
    "a wrong shape": ("kept = take(GIB)\nfail(10 << 40)", {"request_too_large"}),
    "a cache of another stream": (
        "limit(4 * GIB)\nside = torch.cuda.Stream()\n"
        "with torch.cuda.stream(side):\n    whole = take(3 * GIB); del whole\n"
        "    kept = take(512 * MIB)\nfail(2 * GIB)",
        {"fragmentation"},
    ),
    "a graph's pool": (
        "limit(4 * GIB)\ngraph = torch.cuda.CUDAGraph()\n"
        "with torch.cuda.graph(graph):\n    big = take(2.5 * GIB); big.zero_(); del big\n"
        "fail(2 * GIB)",
        {"private_pools"},
    ),
    "a step that keeps": (
        "import memscope\nlimit(1.5 * GIB)\nkept = []\nrecorder = memscope.active_recorder()\n"
        "while True:\n    with recorder.step():\n"
        "        kept.append(take(24 * MIB)); time.sleep(0.06)\n",
        {"growth"},
    ),
}


FILLS_THE_CARD = {"too big a model"}


def situations() -> list[Any]:
    alone = pytest.mark.gpu(alone=True)
    return [
        pytest.param(*situation, id=name, marks=[alone] if name in FILLS_THE_CARD else [])
        for name, situation in SITUATIONS.items()
    ]


def run_source(folder: Path, source: str, *options: str, **environment: str) -> Ended:
    (folder / "program.py").write_text(START + source)
    return record(folder, *options, "program.py", **environment)


def explain(folder: Path) -> dict[str, Any]:
    ended = run_process([PYTHON, "-m", "memscope", "explain", "run.mscope", "--json"], folder)
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


def read(folder: Path) -> Timeline:
    with open_recording(folder / "run.mscope") as recording:
        return read_timeline(recording)


def check_map(folder: Path, reserved: int) -> None:
    """The map adds up to what torch had reserved, and so do its counters."""
    timeline = read(folder)
    found = recorded_map(timeline)
    assert found is not None
    assert found.left_out_segments == 0
    assert found.memory.reserved_bytes == reserved
    first = timeline.ooms[0]
    assert first.counters["reserved"] == reserved
    assert found.memory.bytes_in(0) == first.counters["allocated"]
    assert found.memory.bytes_in(0, 1) == first.counters["active"]


@pytest.mark.parametrize(("source", "expected"), situations())
@pytest.mark.parametrize("options", [(), ("--history", "10000")], ids=["plain", "history"])
def test_situation_has_its_diagnosis(
    source: str, expected: set[str], options: tuple[str, ...], tmp_path: Path
) -> None:
    ended = run_source(tmp_path, source, *options)
    assert ended.code == 1
    assert "OutOfMemoryError" in ended.err
    found = explain(tmp_path)
    print(found["why"])
    assert found["diagnosis"] in expected
    assert read(tmp_path).oom_counts["engine"] == 1
    if ended.out:
        check_map(tmp_path, int(ended.out))
    if options:
        assert any("program.py" in holder["name"] for holder in found["holders"]["stack"])
    elif found["holders"]["stack"]:
        assert "who allocated what: --history was off" in found["unknown"]


@pytest.mark.gpu(alone=True)
def test_memory_of_another_process_is_outside(tmp_path: Path) -> None:
    code = (
        "import time, torch\nfree = torch.cuda.mem_get_info()[0]\n"
        "x = torch.empty(int(free * 0.45), dtype=torch.uint8, device='cuda')\n"
        "print('up', flush=True); time.sleep(120)"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=clean_environment()) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            source = "total = torch.cuda.mem_get_info()[1]\nkept = take(GIB)\nfail(total * 0.7)"
            run_source(tmp_path, source)
        finally:
            other.kill()
    assert explain(tmp_path)["diagnosis"] == "outside"


def test_expandable_segments_add_up(tmp_path: Path) -> None:
    source = (
        "limit(4 * GIB)\nkept = [take(100 * MIB) for _ in range(35)]\ndel kept[::3]\nfail(3 * GIB)"
    )
    setting = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    ended = run_source(tmp_path, source, **setting)
    check_map(tmp_path, int(ended.out))
    assert explain(tmp_path)["is_expandable"] is True


@pytest.mark.gpu(alone=True)
def test_other_backend_is_known_by_its_exception(tmp_path: Path) -> None:
    setting = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
    source = "kept = take(GIB)\ntake(torch.cuda.mem_get_info()[1])"
    assert run_source(tmp_path, source, **setting).code == 1
    timeline = read(tmp_path)
    assert timeline.oom_counts["engine"] == 1
    assert timeline.ooms[0].source == "exception"
    assert recorded_map(timeline) is None
    assert explain(tmp_path)["diagnosis"] is not None


TRAINING = """
limit(6 * GIB)
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(20)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
batch = 1024
while True:
    loss = model(torch.randn(batch, 2048, device='cuda')).square().mean()
    loss.backward(); optimizer.step(); optimizer.zero_grad()
    batch *= 2
"""
GENERATION = """
limit(2 * GIB)
layers = [torch.nn.MultiheadAttention(1024, 16, batch_first=True).cuda() for _ in range(4)]
caches = [torch.zeros(16, 1, 1024, device='cuda') for _ in layers]
with torch.no_grad():
    while True:
        token = torch.randn(16, 256, 1024, device='cuda')
        for number, layer in enumerate(layers):
            caches[number] = torch.cat([caches[number], token], 1)
            token, _ = layer(token, caches[number], caches[number], need_weights=False)
"""


@pytest.mark.parametrize("source", [TRAINING, GENERATION], ids=["training", "generation"])
def test_error_inside_a_program_is_caught_and_explained(source: str, tmp_path: Path) -> None:
    ended = run_source(tmp_path, source, "--history", "10000")
    assert ended.code == 1
    found = explain(tmp_path)
    print(found["why"])
    assert found["diagnosis"] in {"memory_fraction", "fragmentation", "growth"}
    assert found["reserved_bytes"] == sum(each["reserved_bytes"] for each in found["buckets"])
    if source == GENERATION:  # the thread of a backward pass has no frame of Python
        assert any("program.py" in note for note in found["notes"])


def test_transformers_generate_is_caught(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    source = (
        "from transformers import GPT2Config, GPT2LMHeadModel\nlimit(1.5 * GIB)\n"
        "config = GPT2Config(n_layer=12, n_embd=768, n_head=12, n_positions=4096)\n"
        "model = GPT2LMHeadModel(config).cuda().eval()\n"
        "tokens = torch.ones(256, 8, dtype=torch.long, device='cuda')\n"
        "model.generate(tokens, max_new_tokens=4000, do_sample=False, eos_token_id=None, "
        "pad_token_id=0)\n"
    )
    assert run_source(tmp_path, source, "--history", "10000").code == 1
    found = explain(tmp_path)
    assert found["diagnosis"] in {"memory_fraction", "fragmentation", "growth"}
    assert any(holder["frames"] for holder in found["holders"]["stack"])


def test_finder_of_batch_sizes_with_thirty_errors_goes_on(tmp_path: Path) -> None:
    source = (
        "limit(2 * GIB)\nfailed, size = 0, 64 * GIB\nwhile failed < 30:\n"
        "    try: take(size)\n    except torch.OutOfMemoryError: failed += 1; size -= GIB\n"
        "print(failed, take(GIB).numel())"
    )
    ended = run_source(tmp_path, source)
    assert (ended.code, ended.out, ended.err) == (0, f"30 {GIB}\n", "")
    timeline = read(tmp_path)
    assert timeline.oom_counts["engine"] == 30
    assert timeline.facts["torch.map"]["device"] == 0


def test_error_during_a_capture_is_the_programs_own(tmp_path: Path) -> None:
    source = (
        "limit(GIB)\ngraph = torch.cuda.CUDAGraph()\ntry:\n"
        "    with torch.cuda.graph(graph): x = take(3 * GIB)\n"
        "except torch.OutOfMemoryError as error: print('caught', type(error).__name__)\n"
    )
    (tmp_path / "program.py").write_text(START + source)
    plain = run_process([PYTHON, "program.py"], tmp_path)
    ended = record(tmp_path, "program.py")
    assert (ended.code, ended.out) == (plain.code, plain.out)
    assert read(tmp_path).oom_counts["engine"] == 1


COST = """
import sys, time, torch
from memscope.probes.torch import oom
from memscope.probes.torch import history
torch.cuda.init(); torch.empty(1, device='cuda')
if sys.argv[1] != 'none': oom.attach_observer(torch); assert None in oom._attached.values()
if sys.argv[1] == 'history': assert history.start_history(torch, 100000) is None
def measure(count):
    start = time.perf_counter_ns()
    for _ in range(count): torch.empty(1 << 20, device='cuda')
    return (time.perf_counter_ns() - start) / count
measure(20000)
print(min(measure(20000) for _ in range(10)))
"""


@pytest.mark.gpu(alone=True)
def test_observer_that_is_not_called_costs_nothing(tmp_path: Path) -> None:
    found: dict[str, list[float]] = {"none": [], "observer": [], "history": []}
    for _ in range(5):
        for name, times in found.items():
            ended = run_process([PYTHON, "-c", COST, name], tmp_path)
            assert ended.code == 0, ended.err
            times.append(float(ended.out))
    best = {name: min(times) for name, times in found.items()}
    print({name: f"{time:.0f} ns an allocation" for name, time in best.items()})
    assert best["observer"] < 1.05 * best["none"]


@pytest.mark.gpu(alone=True)
def test_large_map_is_within_its_time(tmp_path: Path) -> None:
    """As many blocks as are recorded, and how long the program waited for them."""
    source = (
        "limit(4 * GIB)\nkept = [take(512) for _ in range(150_000)]\nstart = time.perf_counter()\n"
        "try: take(5 * GIB)\nexcept torch.OutOfMemoryError: print(time.perf_counter() - start)\n"
    )
    ended = run_source(tmp_path, source)
    fact = read(tmp_path).facts["torch.map"]
    print(ended.out, fact)
    assert float(ended.out) < 6
    assert fact["blocks"] + fact.get("left_out_blocks", 0) >= 150_000
