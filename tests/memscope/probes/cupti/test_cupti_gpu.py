"""On a GPU: with CUPTI and a measured context the ledger leaves next to nothing unexplained."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from memscope.analysis.ledger.ledger import Ledger
from tests.memscope.launch.programs import record as run_recorded
from tests.memscope.launch.programs import run_process
from tests.memscope.probes.torch.ledgers import assert_adds_up, read_ledger, size

# Alone: the processes of other tests come and go between two readings of one ledger.
pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

MIB, GIB = 1 << 20, 1 << 30
LEAST = 64 * MIB

BEGIN = """
import ctypes, sys, threading, time
import torch, memscope
from memscope.probes.torch.context import measure_context

def runtime():
    with open("/proc/self/maps") as maps:
        return ctypes.CDLL(next(line.split()[-1] for line in maps if "libcudart" in line))

with memscope.record("run.mscope", cupti=True) as recorder:
    measure_context(recorder)
"""
GENERATE = """
    from transformers import Qwen3Config, Qwen3ForCausalLM
    config = Qwen3Config(
        vocab_size=32000, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128, eos_token_id=None,
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen3ForCausalLM(config).eval()
    memscope.watch(model)
    for _ in range(2):
        ids = torch.randint(0, 32000, (1, 32), device="cuda")
        model.generate(ids, max_new_tokens=48, do_sample=False, pad_token_id=0)
    time.sleep(1.2)
"""
TRAIN = """
    layers = [torch.nn.Linear(2048, 2048) for _ in range(6)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    convolution = torch.nn.Conv2d(8, 8, 3).cuda()
    for _ in range(60):
        loss = model(torch.randn(64, 2048, device="cuda")).square().mean()
        loss = loss + convolution(torch.randn(4, 8, 64, 64, device="cuda")).square().mean()
        loss.backward(); optimizer.step(); optimizer.zero_grad()
        time.sleep(0.02)
    time.sleep(1.2)
"""
RUNNER = """
    from dataclasses import replace
    from memscope_runners.decoder import Decoder
    from memscope_runners.checkpoint.checkpoint import open_checkpoint
    from memscope_runners.checkpoint.checkpoint_writer import write_checkpoint
    from memscope_runners.checkpoint.synthetic import TINY, SyntheticModel
    from memscope_runners.settings import Settings
    from pathlib import Path
    config = replace(TINY, layers=8, hidden=1024, intermediate=2048, heads=16, head_dim=64,
                     kv_heads=8)
    write_checkpoint(SyntheticModel(config), Path("model.q8.safetensors"))
    checkpoint = open_checkpoint(Path("model.q8.safetensors"))
    settings = Settings("past", 4, sys.argv[1], device="cuda:0")
    decoder = Decoder(checkpoint, settings, 64, recorder)
    decoder.generate(list(range(40, 52)), max_tokens=32, ignore_eos=True)
    time.sleep(1.2)
    recorder.close()
    decoder.close()
"""
PLANTED = """
    kept = torch.ones(1 << 20, device="cuda")
    kept.view(1024, 1024) @ kept.view(1024, 1024)
    time.sleep(0.5)
    pointer = ctypes.c_void_p()
    if sys.argv[1] == "runtime":
        assert not runtime().cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 30))
    elif sys.argv[1] == "driver":
        driver = ctypes.CDLL("libcuda.so.1")
        assert not driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 30))
    else:
        library = runtime()
        assert not library.cudaMallocAsync(ctypes.byref(pointer), ctypes.c_size_t(1 << 30), None)
        torch.cuda.synchronize()
    time.sleep(1.2)
"""
PROFILE = """
    from torch.profiler import ProfilerActivity, profile
    x = torch.randn(512, 512, device="cuda")
    y = x @ x
    time.sleep(0.5)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(5):
            y = x @ x
        torch.cuda.synchronize()
    kind = torch.autograd.DeviceType.CUDA
    print(sum(event.device_type == kind for event in profiler.events()))
    pointer = ctypes.c_void_p()
    assert not runtime().cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 28))
    time.sleep(1.2)
"""
CAPTURE = """
    import memscope.recorder.recorder as writer
    writer.SAMPLE_SECONDS = 0.001
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(64))).cuda()
    inputs = torch.ones(8, 256, device="cuda")
    with torch.inference_mode():
        expected = model(inputs)
        torch.cuda.synchronize()
        for size in range(20):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                time.sleep(0.01)
                more = torch.empty(size << 20, dtype=torch.uint8, device="cuda")
                found = model(inputs)
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(found, expected)
"""
# Threads that allocate segments while others, with the interpreter, free tensors.
THREADS = """
    import memscope.recorder.recorder as writer
    writer.SAMPLE_SECONDS = 0.001
    end = time.monotonic() + 5
    def work(number):
        while time.monotonic() < end:
            kept = [torch.empty((number + 1) << 24, dtype=torch.uint8, device="cuda")
                    for _ in range(8)]
            weights = torch.ones(512, 512, device="cuda", requires_grad=True)
            (weights @ weights).sum().backward()
            del kept, weights
            torch.cuda.empty_cache()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"""


def recorded(folder: Path, program: str, *words: str) -> tuple[Ledger, str]:
    """The program in a process of its own, for a context that nothing is in yet."""
    (folder / "program.py").write_text(BEGIN + program)
    ended = run_process([sys.executable, "program.py", *words], folder)
    assert ended.code == 0, ended.err
    return read_ledger(folder / "run.mscope"), ended.out


def assert_explained(ledger: Ledger) -> None:
    assert_adds_up(ledger)
    unexplained = ledger.find("unexplained")
    used = size(ledger, "used")
    lines = "\n".join(f"{line.words}: {line.bytes} {line.reason}" for _, line in ledger.lines)
    assert unexplained is not None
    assert unexplained.bytes is not None
    assert abs(unexplained.bytes) <= max(used // 100, LEAST), lines


@pytest.mark.parametrize("program", [GENERATE, TRAIN], ids=["generate", "train"])
def test_next_to_nothing_is_unexplained(tmp_path, program):
    ledger, _ = recorded(tmp_path, program)
    assert_explained(ledger)
    assert size(ledger, "context") > 100 * MIB
    assert size(ledger, "libraries") > 0
    assert size(ledger, "cupti") == 0


@pytest.mark.parametrize("allocator", ["pool", "async"])
def test_the_runners_own_calls_are_counted_once(tmp_path, allocator):
    ledger, _ = recorded(tmp_path, RUNNER, allocator)
    assert_explained(ledger)
    assert size(ledger, "raw") > 16 * MIB
    assert ledger.find("library.cuda.bindings") is None


@pytest.mark.parametrize("call", ["runtime", "driver"])
def test_a_planted_allocation_is_its_librarys_and_nobody_elses(tmp_path, call):
    ledger, _ = recorded(tmp_path, PLANTED, call)
    assert size(ledger, "library.ctypes") == pytest.approx(GIB, rel=0.01)
    assert size(ledger, "stream_ordered") == 0
    assert size(ledger, "modules") < 256 * MIB
    assert_explained(ledger)


def test_a_planted_stream_ordered_allocation_is_in_the_pools_line(tmp_path):
    ledger, _ = recorded(tmp_path, PLANTED, "stream")
    assert size(ledger, "stream_ordered") == pytest.approx(GIB, rel=0.01)
    assert ledger.find("library.ctypes") is None
    assert_explained(ledger)


def test_another_process_has_a_line_of_its_own(tmp_path):
    program = (
        "import sys, torch; kept = torch.ones(2 << 30, dtype=torch.uint8, device='cuda'); "
        "torch.cuda.synchronize(); print('ready', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        ledger, _ = recorded(tmp_path, PLANTED, "runtime")
        other.communicate()
    if ledger.find("process") is None:
        pytest.skip("NVML does not list this process here (a container's own numbers)")
    context = size(ledger, "context")
    held = size(ledger, f"process.{other.pid}")
    assert held - context - 128 * MIB <= 2 * GIB * 1.01
    assert held >= 2 * GIB
    assert_explained(ledger)


def test_the_profiler_sees_kernels_and_the_recording_goes_on(tmp_path):
    ledger, out = recorded(tmp_path, PROFILE)
    assert int(out) >= 5
    assert size(ledger, "library.ctypes") == 256 * MIB
    libraries = ledger.find("libraries")
    assert libraries is not None
    assert "torch.profiler held CUPTI" in libraries.reason


@pytest.mark.parametrize("program", [CAPTURE, THREADS], ids=["capture", "threads"])
def test_the_program_is_not_held_up(tmp_path, program):
    recorded(tmp_path, program)


def test_run_takes_the_option(tmp_path):
    code = (
        "import torch, time; x = torch.randn(512, 512, device='cuda'); x @ x; "
        "torch.cuda.synchronize(); time.sleep(1)"
    )
    command = [sys.executable, "-m", "memscope", "run", "--cupti", "-o", "run.mscope", "-c", code]
    ended = run_process(command, tmp_path)
    assert ended.code == 0, ended.err
    ledger = read_ledger(tmp_path / "run.mscope")
    assert size(ledger, "library.libcublas.so.13") > 0
    assert_explained(ledger)


def test_the_doctor_finds_cupti(tmp_path):
    out = run_process([sys.executable, "-m", "memscope", "doctor", "--json"], tmp_path).out
    check = next(check for check in json.loads(out) if check["name"] == "CUPTI")
    assert check["verdict"] == "ok", check


def test_short_runs_are_read_at_one_moment(tmp_path):
    code = (
        "import torch; x = [torch.ones(1 << 24, device='cuda') for _ in range(4)]; "
        "torch.cuda.synchronize(); import time; time.sleep(0.3); "
        "y = torch.ones(1 << 26, device='cuda'); torch.cuda.synchronize()"
    )
    (tmp_path / "program.py").write_text(code)
    assert run_recorded(tmp_path, "program.py").code == 0
    ledger = read_ledger(tmp_path / "run.mscope")
    assert_explained(ledger)
