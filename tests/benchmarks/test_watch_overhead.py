"""The bench of watching: what it reports, on a model that a laptop runs."""

from __future__ import annotations

import json
import sys

import pytest

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks import watch_overhead  # noqa: E402
from memscope.cli.bench import run_script  # noqa: E402


def test_every_variant_runs_over_the_same_weights_or_says_why_not(monkeypatch):
    monkeypatch.setattr(watch_overhead, "COMPARED_TURNS", 2)
    found = watch_overhead.measure(rounds=1, tokens=4, device="cpu", progress=lambda *_: None)
    result = json.loads(json.dumps(found.to_json()))
    names = [cost["name"] for cost in result["costs"]]
    assert names + list(result["skipped"]) == [
        "plain",
        "empty hooks",
        "memscope.watch",
        "torch.profiler(profile_memory=True)",
        "memory_allocated() in hooks",
        "_record_memory_history",
    ]
    by_name = {cost["name"]: cost for cost in result["costs"]}
    assert by_name["plain"]["over_plain"]["value"] == 1
    assert by_name["empty hooks"]["over_empty_hooks"]["value"] == 1
    assert all(cost["ms_per_token"]["value"] > 0 for cost in result["costs"])
    assert result["limits"] == {"watch over empty hooks": 1.02}


def test_models_share_their_weights_and_not_their_hooks():
    model = watch_overhead.build_model("cpu", is_large=False)
    other = watch_overhead.share_weights(model)
    assert other is not model
    assert other.lm_head.weight is model.lm_head.weight
    other.model.layers[0].register_forward_hook(lambda *_: None)
    assert not model.model.layers[0]._forward_hooks


def test_script_rejects_what_measures_nothing(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["watch_overhead.py", "--tokens", "1"])
    arguments = (watch_overhead.__doc__, watch_overhead.add_arguments, watch_overhead.run)
    assert run_script(*arguments) == 2
    assert "measures nothing" in capsys.readouterr().err
