"""The examples run as they stand, and a recording of each can be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

EXAMPLES = ROOT / "examples"


def run_example(name: str, path: Path, *options: str) -> dict[str, Any]:
    """The summary of what the example recorded."""
    pytest.importorskip("torch")
    if name == "generate":
        pytest.importorskip("transformers")
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), str(path), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=path.parent)
    assert done.returncode == 0, done.stderr
    shown = subprocess.run(
        [sys.executable, "-m", "memscope", "summary", "--json", str(path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert shown.returncode == 0, shown.stderr
    summary: dict[str, Any] = json.loads(shown.stdout)
    return summary


@pytest.mark.slow
def test_generate_has_a_step_a_token_and_its_kv_is_no_leak(tmp_path):
    summary = run_example("generate", tmp_path / "run.mscope")
    assert summary["steps"] == 3 * 64
    assert summary["facts"]["model"]["name"] == "Qwen3ForCausalLM"
    assert len(summary["facts"]["watch"]["layers"]) == 4
    assert not any(each["kind"] == "leak" for each in summary["sentences"])


@pytest.mark.slow
def test_training_has_a_step_an_optimizer_step(tmp_path):
    summary = run_example("train", tmp_path / "run.mscope")
    assert summary["steps"] == 60
    assert summary["facts"]["watch"]["step"] == "optimizer.step"


@pytest.mark.slow
def test_serving_has_a_step_a_request(tmp_path):
    summary = run_example("serve", tmp_path / "run.mscope", "--flush")
    assert summary["steps"] == 60


def test_watching_changes_no_loss(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr("memscope.watch", lambda *_, **__: None)
    import train

    plain = train.main(str(tmp_path / "plain.mscope"), steps=10)
    monkeypatch.undo()
    watched = train.main(str(tmp_path / "watched.mscope"), steps=10)
    assert plain == watched
    assert torch.isfinite(torch.tensor(plain)).all()


@pytest.mark.gpu
def test_a_leak_is_named_on_a_gpu(tmp_path):
    summary = run_example("train", tmp_path / "run.mscope", "--leak")
    assert any(each["kind"] == "leak" for each in summary["sentences"])


@pytest.mark.gpu
def test_a_flush_a_request_is_named_on_a_gpu(tmp_path):
    summary = run_example("serve", tmp_path / "run.mscope", "--flush")
    assert summary["metrics"]["allocator.flushes_in_steps"]["value"] >= 50
    assert any(each["kind"] == "flushes" for each in summary["sentences"])
