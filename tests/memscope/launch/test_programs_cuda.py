"""On a GPU: a leak, fragmentation and flushes are each named in one sentence; a KV cache is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.memscope.launch.programs import PYTHON, record, run_process

pytestmark = pytest.mark.gpu
pytest.importorskip("torch")

KINDS = ("leak", "fragmentation", "flushes")
# Steps of a small model; `work(step)` is what each program does beside it.
LOOP = """
import time, torch
model = torch.nn.Linear(1024, 1024, device="cuda")
inputs = torch.ones(8, 1024, device="cuda")
time.sleep(0.5)
with torch.inference_mode():
    for step in range(STEPS):
        work(step)
        model(inputs)
        time.sleep(0.02)
"""
KEPT = """
import torch
kept = []
def work(step): kept.append(torch.empty(4 << 20, dtype=torch.uint8, device="cuda"))
"""
EVER_LARGER = """
import torch
def work(step): torch.empty((20 + 2 * step) << 20, dtype=torch.uint8, device="cuda")
"""
FLUSHES = """
import torch
def work(step):
    torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    torch.cuda.empty_cache()
"""
# The cache as transformers has it, without transformers: the class that memscope follows.
GENERATES = """
import sys, types, torch
class Cache:
    def __init__(self): self.key_cache, self.value_cache = [], []
module = types.ModuleType("transformers.cache_utils")
module.Cache = Cache
sys.modules["transformers.cache_utils"] = module
cache = None
def work(step):
    global cache
    cache = cache or Cache()
    if step < 20: return
    for layer in range(28):
        token = torch.zeros(1, 8, 1, 128, dtype=torch.bfloat16, device="cuda")
        for held in (cache.key_cache, cache.value_cache):
            if len(held) <= layer: held.append(token)
            else: held[layer] = torch.cat((held[layer], token), 2)
"""


def sentences(folder: Path, work: str, steps: int = 250) -> list[str]:
    """What the summary says of the program, of the three that it may name."""
    (folder / "program.py").write_text(work + LOOP.replace("STEPS", str(steps)))
    ended = record(folder, "program.py")
    assert (ended.code, ended.err) == (0, "")
    command = [PYTHON, "-m", "memscope", "summary", "run.mscope", "--json"]
    said = json.loads(run_process(command, folder).out)["sentences"]
    return [each["text"] for each in said if each["kind"] in KINDS]


def test_leak_is_named_with_its_amount(tmp_path: Path) -> None:
    (said,) = sentences(tmp_path, KEPT)
    assert said.startswith("Leak: allocated memory grows by 4.00 MiB a step")


def test_fragmentation_is_named_with_its_amount(tmp_path: Path) -> None:
    (said,) = sentences(tmp_path, EVER_LARGER)
    assert said.startswith("Fragmentation:")
    assert "GiB" in said
    assert "a step" in said


def test_flush_in_each_step_is_named_with_its_caller(tmp_path: Path) -> None:
    (said,) = sentences(tmp_path, FLUSHES)
    assert "program.py" in said
    assert "freed 256 MiB" in said


def test_growing_kv_cache_is_none_of_them(tmp_path: Path) -> None:
    assert sentences(tmp_path, GENERATES) == []


def test_private_pool_of_a_graph_has_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import time, torch\n"
        "x = torch.ones(8 << 20, device='cuda')\n"
        "torch.cuda.synchronize()\n"
        "graph = torch.cuda.CUDAGraph()\n"
        "with torch.cuda.graph(graph): y = (x * 2 + 1).sum()\n"
        "for _ in range(30):\n"
        "    graph.replay(); torch.cuda.synchronize(); time.sleep(0.1)\n"
    )
    assert record(tmp_path, "program.py").code == 0
    command = [PYTHON, "-m", "memscope", "summary", "run.mscope", "--json"]
    ledger = json.loads(run_process(command, tmp_path).out)["ledger"][0]
    lines = {line["key"]: line for line in ledger["lines"]}
    assert lines["torch.private"]["reason"] is None
    assert lines["torch.private"]["bytes"] >= 32 << 20  # x * 2, free again once captured


def test_bytes_of_the_device_come_from_the_runtime_without_nvml(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import sys; sys.modules['pynvml'] = None\n"
        "import time, torch, memscope\n"
        "recorder = memscope.active_recorder()\n"
        "x = torch.ones(256 << 20, dtype=torch.uint8, device='cuda')\n"
        "for _ in range(20):\n"
        "    with recorder.step():\n"
        "        x.add_(1); graph = torch.cuda.CUDAGraph(); torch.cuda.synchronize()\n"
        "        with torch.cuda.graph(graph): y = x * 2; time.sleep(0.1)\n"
        "        with recorder.step(): graph.replay()\n"
        "print(torch.cuda.mem_get_info()[1])\n"
    )
    ended = record(tmp_path, "program.py")
    assert (ended.code, ended.err) == (0, "")
    command = [PYTHON, "-m", "memscope", "summary", "run.mscope", "--json"]
    ledger = json.loads(run_process(command, tmp_path).out)["ledger"][0]
    assert ledger["source"] == "mem_get_info"
    lines = {line["key"]: line for line in ledger["lines"]}
    assert lines["total"]["bytes"] == int(ended.out)
    assert lines["used"]["bytes"] >= 256 << 20
    assert "nvidia-ml-py is not installed" in lines["driver_reserved"]["reason"]
