"""Steps of programs that mark none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from memscope.analysis.timeline.read import read_timeline
from memscope.reader.recording import Recording
from tests.memscope.launch.programs import facts_of, record, steps_of

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

MODEL = (
    "import sys, time, torch\n"
    "torch.set_num_threads(1)\n"
    "model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))\n"
    "hooks = torch.nn.modules.module, sys.modules['torch.optim.optimizer']\n"
    "until = time.monotonic() + 120\n"
    "while time.monotonic() < until and not (\n"
    "    hooks[0]._global_forward_pre_hooks and hooks[1]._global_optimizer_post_hooks\n"
    "): time.sleep(0.01)\n"
)


def run_loop(tmp_path: Path, body: str) -> tuple[int, object]:
    """Steps of a program from its last source, those of seconds before them not counted."""
    (tmp_path / "program.py").write_text(MODEL + body)
    ended = record(tmp_path, "program.py")
    assert (ended.code, ended.err) == (0, "")
    with Recording(tmp_path / "run.mscope") as recording:
        timeline = read_timeline(recording)
    ends = timeline.steps.end_ns
    count = int((ends > timeline.steps_taken_ns).sum())
    return count, timeline.facts["run.step_source"]


def test_outermost_forwards_are_steps(tmp_path: Path) -> None:
    steps, source = run_loop(
        tmp_path,
        "import copy, pickle\n"
        "for _ in range(30): model(torch.zeros(1, 4)); assert not model._forward_hooks\n"
        "copy.deepcopy(model); pickle.dumps(model)\n",
    )
    assert source == "module"
    assert steps == 30  # the first, which tells where they come from, is one


def test_forward_that_raises_is_a_step_and_no_more(tmp_path: Path) -> None:
    steps, source = run_loop(
        tmp_path,
        "class Raises(torch.nn.Module):\n"
        "    def forward(self, x): raise ValueError(x)\n"
        "bad = Raises()\n"
        "for _ in range(20):\n"
        "    try: bad(1)\n"
        "    except ValueError as error: assert error.args == (1,)\n"
        "    model(torch.zeros(1, 4))\n",
    )
    assert source == "module"
    assert steps == 40


def test_optimizer_steps_come_before_forwards(tmp_path: Path) -> None:
    steps, source = run_loop(
        tmp_path,
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(30):\n"
        "    model(torch.zeros(1, 4)); model(torch.ones(1, 4)).sum().backward()\n"
        "    optimizer.step()\n",
    )
    assert source == "optimizer"
    assert steps == 30


def test_marked_steps_come_before_all(tmp_path: Path) -> None:
    steps, source = run_loop(
        tmp_path,
        "import memscope\n"
        "recorder = memscope.active_recorder()\n"
        "for _ in range(10):\n"
        "    with recorder.step(): model(torch.zeros(1, 4)); model(torch.zeros(1, 4))\n",
    )
    assert source == "program"
    assert steps == 10


def test_compiled_program_is_not_hooked(tmp_path: Path) -> None:
    steps, source = run_loop(
        tmp_path,
        "model = torch.compile(model, backend='eager', fullgraph=True)\n"
        "for _ in range(1000): model(torch.zeros(1, 4))\n",
    )
    assert source == "second"
    assert steps < 1000  # seconds, of which a slow machine has some


def test_seconds_are_steps_without_torch(tmp_path: Path) -> None:
    started = time.monotonic()
    assert record(tmp_path, "-c", "import time; time.sleep(2.6)").code == 0
    lasted = time.monotonic() - started
    steps = steps_of(tmp_path / "run.mscope")
    assert steps == list(range(len(steps)))
    assert 1 <= len(steps) <= lasted
    assert facts_of(tmp_path / "run.mscope")["run.step_source"] == "second"
