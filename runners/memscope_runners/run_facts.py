"""The facts that a recording has about a decoder run."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
from typing import TYPE_CHECKING

import torch

from memscope.facts import FIRST_DEVICE, Fact, RunKind
from memscope.plan import Plan
from memscope_runners.memory.device import Device
from memscope_runners.q8.linear import product_name
from memscope_runners.q8.weights import CheckpointSource
from memscope_runners.settings import Settings

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

WARMUP_STEPS = 2


def record_facts(
    recorder: Recorder,
    checkpoint: CheckpointSource,
    settings: Settings,
    device: Device,
    plan: Plan,
) -> None:
    """Record everything that is known before the first step."""
    recorder.fact(Fact.RUN_KIND, RunKind.DECODE)
    recorder.fact(Fact.WARMUP_STEPS, WARMUP_STEPS)
    recorder.fact(Fact.VERSIONS, _versions(device))
    recorder.fact(FIRST_DEVICE, _device(device))
    recorder.fact(Fact.MODEL, _model(checkpoint, plan))
    recorder.fact(Fact.POLICY, settings.facts())
    recorder.fact(Fact.PLAN, plan.facts())
    recorder.fact(Fact.PRODUCT, _product(device))


def _device(device: Device) -> dict[str, object]:
    names = ("name", "kind", "total_bytes", "limit_bytes")
    return {name: getattr(device, name) for name in names}


def _model(checkpoint: CheckpointSource, plan: Plan) -> dict[str, object]:
    layers, entries = checkpoint.config.layers, len(checkpoint.layer_layout.entries)
    needs = plan.needs
    return {
        "name": checkpoint.name,
        "layers": layers,
        "entries_per_layer": entries,
        "entries": layers * entries + 1,
        "slab_bytes": needs.slab_bytes,
        "head_bytes": needs.head_bytes,
        "fixed_bytes": needs.fixed_bytes,
        "weights_bytes": layers * needs.slab_bytes + needs.head_bytes,
    }


def _product(device: Device) -> dict[str, object]:
    if device.kind == "cuda":
        return {"name": "triton"}
    return {"name": product_name(), "threads": torch.get_num_threads()}


def _versions(device: Device) -> dict[str, str | None]:
    versions: dict[str, str | None] = {
        "memscope": importlib.metadata.version("memscope-torch"),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    if device.kind == "cuda":
        versions["cuda"] = torch.version.cuda
        for package in ("cuda-bindings", "triton"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[package] = importlib.metadata.version(package)
    return versions
