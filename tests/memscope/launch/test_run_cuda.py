"""`memscope run` on a GPU: children that hold memory, ranks, captures, processes beside it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.memscope.launch.programs import (
    PYTHON,
    clean_environment,
    facts_of,
    record,
    run_process,
    steps_of,
)

pytestmark = pytest.mark.gpu

MIB, GIB = 1 << 20, 1 << 30
HOLD = "import torch, time; x = torch.empty(1 << 30, dtype=torch.uint8, device='cuda'); "


def summary(folder: Path, *words: str) -> dict[str, object]:
    command = [PYTHON, "-m", "memscope", "summary", *words, "--json"]
    found: dict[str, object] = json.loads(run_process(command, folder).out)
    return found


def without_numbers(text: str) -> str:
    return re.sub(r"\d+", "N", text)


def test_summary_names_the_spawned_child_and_its_gib(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(
        "import multiprocessing, time\n"
        f"def work(): {HOLD}time.sleep(1.5)\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    child.start(); child.join(); print(child.pid)\n"
    )
    ended = record(tmp_path, "server.py")
    assert (ended.code, ended.err) == (0, "")
    data = summary(tmp_path, "run.mscope")
    assert data["holder"] == int(ended.out)
    parent, child = data["processes"]  # type: ignore[misc]
    assert parent["device_bytes"] is None
    held = child["summary"]["metrics"]["memory.peak_bytes"]["value"]
    assert abs(held - GIB) <= GIB / 100


def test_forked_child_uses_cuda_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        f"import os, torch\npid = os.fork()\nif not pid:\n    {HOLD}time.sleep(1)\n"
        "else: os.waitpid(pid, 0); print(pid)\n"
    )
    plain = run_process([PYTHON, "program.py"], tmp_path)
    ended = record(tmp_path, "program.py")
    # From 3.12 on Python warns of a fork beside threads: torch and numpy have some by themselves.
    assert (ended.code, without_numbers(ended.err)) == (0, without_numbers(plain.err))
    assert summary(tmp_path, "run.mscope")["holder"] == int(ended.out)


def test_torchrun_gives_a_file_a_rank(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, time, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())\n"
        "model = torch.nn.Linear(4096, 4096, device='cuda')\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "time.sleep(0.3)\n"
        "for _ in range(20):\n"
        "    model(torch.ones(8, 4096, device='cuda')).sum().backward(); optimizer.step()\n"
        "dist.barrier(); dist.destroy_process_group()\n"
    )
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    assert record(tmp_path, *words).code == 0
    data = summary(tmp_path, "run.mscope")
    processes = data["processes"]
    assert isinstance(processes, list)
    assert sorted(process["rank"] for process in processes[1:]) == [0, 1]
    for process in processes[1:]:
        assert facts_of(tmp_path / process["path"])["run.step_source"] == "optimizer"
        assert len(steps_of(tmp_path / process["path"])) >= 19
        assert process["device_bytes"] > 64 * MIB


def test_sampling_never_fails_a_capture(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import time, torch\n"
        "x = torch.ones(1 << 20, device='cuda')\n"
        "model = torch.nn.Linear(1024, 1024, device='cuda')\n"
        "time.sleep(0.5)\n"
        "for _ in range(20):\n"
        "    model(torch.ones(8, 1024, device='cuda'))\n"
        "    torch.cuda.synchronize()\n"
        "    graph = torch.cuda.CUDAGraph()\n"
        "    with torch.cuda.graph(graph):\n"
        "        y = x * 2; time.sleep(0.12)\n"
        "    graph.replay()\n"
        "torch.cuda.make_graphed_callables(model, (torch.ones(8, 1024, device='cuda'),))\n"
        "print(float(y.sum()))\n"
    )
    plain = run_process([PYTHON, "program.py"], tmp_path)
    ended = record(tmp_path, "program.py")
    assert (ended.code, ended.out, ended.err) == (0, f"{2.0 * (1 << 20)}\n", plain.err)


@pytest.mark.gpu(alone=True)
def test_machine_shows_the_process_beside_it(tmp_path: Path) -> None:
    code = (
        "import torch, time; x = torch.empty(2 << 30, dtype=torch.uint8, device='cuda'); "
        "print('up', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=clean_environment()
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            cards = summary(tmp_path)["cards"]
        finally:
            process.kill()
    lines = [line for card in cards for line in card["lines"]]  # type: ignore[attr-defined]
    own = next(line for line in lines if line["pid"] == process.pid)
    assert own["bytes"] >= 2 * GIB
    assert "torch.empty" in own["command"]
    for card in cards:  # type: ignore[attr-defined]
        total = sum(line["bytes"] for line in card["lines"] if line["bytes"] is not None)
        assert total == card["total_bytes"]


def test_doctor_finds_the_card(tmp_path: Path) -> None:
    out = run_process([PYTHON, "-m", "memscope", "doctor", "--json"], tmp_path).out
    by_name = {check["name"]: check for check in json.loads(out)}
    assert by_name["NVML"]["verdict"] == "ok"
    assert by_name["CUDA"]["verdict"] == "ok"
