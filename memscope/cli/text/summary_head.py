"""The first lines of a summary: what was recorded, where, and with which settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memscope.analysis.summary.no_device import metrics_without_device
from memscope.analysis.timeline.facts import read_model, read_policy, read_versions
from memscope.analysis.timeline.step_numbers import StepKind
from memscope.cli.text.columns import align
from memscope.text import clean
from memscope.units import format_bytes

if TYPE_CHECKING:
    from memscope.analysis.summary.summary import Summary
    from memscope.analysis.timeline.facts import Device

MOST_VERSIONS = 8
_STEP_NAMES: dict[StepKind | None, str] = {
    StepKind.OPTIMIZER: "optimizer step",
    StepKind.FORWARD: "forward step",
    StepKind.SECOND: "one-second step",
}


def head_lines(summary: Summary, path: str, at: str) -> list[str]:
    """A line for each of these that the recording tells."""
    rows = [("recording", path), ("state", str(summary.state))]
    if summary.state.is_partial:
        rows.append(("PARTIAL", "events are missing: metrics may be too low"))
    if at != "end":
        seen = f"{summary.batches:,} of {summary.state.batches:,} batches"
        rows.append(("up to", f"{at} ({seen}, {summary.events:,} events)"))
    rows += [
        ("model", _model(summary)),
        ("device", _device(summary)),
        ("policy", _policy(summary)),
        ("versions", _versions(summary)),
        ("steps", _steps(summary)),
    ]
    return align([(key, clean(text, 400)) for key, text in rows if text], indent="")


def _model(summary: Summary) -> str:
    model = read_model(summary.facts)
    words = [model.name, model.layers and f"{model.layers} layers"]
    if model.weights_bytes is not None:
        words.append(f"{format_bytes(model.weights_bytes)} of weights")
    return ", ".join(word for word in words if word)


def _device(summary: Summary) -> str:
    devices = summary.used_devices
    if not devices:
        return "no GPU was recorded" if metrics_without_device(summary) else ""
    total = " total" if len(devices) == 1 else ""
    sizes = dict.fromkeys(_sizes(device, total) for device in devices)
    each = " each" if len(devices) > 1 and len(sizes) == 1 and any(sizes) else ""
    words = [summary.device_name, " and ".join(filter(None, sizes)) + each]
    words += ["no GPU"] if devices[0].is_host else []
    return ", ".join(filter(None, words))


def _sizes(device: Device, total: str) -> str:
    sizes = [f"{format_bytes(device.total_bytes)}{total}"] if device.total_bytes else []
    if device.limit_bytes and device.limit_bytes != device.total_bytes:
        sizes.append(f"limited to {format_bytes(device.limit_bytes)}")
    return ", ".join(sizes)


def _policy(summary: Summary) -> str:
    settings = read_policy(summary.facts)
    if settings.policy is None:
        return ""
    keep = "" if settings.keep is None else f", keep {settings.keep}"
    words = [
        f"{settings.policy}{keep}",
        settings.allocator and f"allocator {settings.allocator}",
        settings.unit and f"unit {settings.unit}",
        "prefetch" if settings.prefetch else "no prefetch",
    ]
    return ", ".join(word for word in words if word)


def _versions(summary: Summary) -> str:
    versions = list(read_versions(summary.facts).items())
    return ", ".join(f"{name} {number}" for name, number in versions[:MOST_VERSIONS])


def _steps(summary: Summary) -> str:
    """ "40 optimizer steps (the first is warm-up). 14 steps before them are ignored." """
    if not summary.steps:
        return "none has ended"
    counts = summary.step_counts
    name = _STEP_NAMES.get(counts.kind, "step")
    text = f"{counts.ended:,} {name}{'' if counts.ended == 1 else 's'}"
    if counts.kind is StepKind.SECOND:
        return f"{text} (the program shows no steps of its own)."
    if counts.warmup > 0:
        several = f"the first {counts.warmup:,} are warm-up"
        text += f" ({'the first is warm-up' if counts.warmup == 1 else several})"
    if not counts.ignored:
        return f"{text}."
    earlier = "1 step before them is" if counts.ignored == 1 else None
    return f"{text}. {earlier or f'{counts.ignored:,} steps before them are'} ignored."
