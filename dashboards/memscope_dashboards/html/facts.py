"""The facts of a recording as titles, cards and a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from memscope.analysis.summary.summary import Summary
from memscope.analysis.timeline.facts import Device
from memscope.facts import FIRST_DEVICE, Fact
from memscope.units import format_bytes, format_seconds
from memscope_dashboards.html.markup import escape, plain

_CARDS = (
    (FIRST_DEVICE, "Device"),
    (Fact.MODEL, "Model"),
    (Fact.POLICY, "Settings"),
    (Fact.PLAN, "Plan"),
)
_BEYOND_MEASURE = 1 << 62  # larger numbers are not sizes or times: shown as written


def format_fact(key: str, value: object) -> str:
    """A fact's value as readable text. The suffix of ``key`` gives its unit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "none"
    if isinstance(value, int | float):
        return _format_number(key, value)
    if isinstance(value, list | tuple) and all(isinstance(item, str | int) for item in value):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _format_number(key: str, value: float) -> str:
    is_measure = abs(value) < _BEYOND_MEASURE
    if is_measure and key.endswith("bytes"):
        return format_bytes(value)
    if is_measure and key.endswith("_ns"):
        return format_seconds(value / 1e9)
    if is_measure and key.endswith("_bytes_per_s"):
        return f"{format_bytes(int(value))}/s"
    if is_measure and key.endswith("_s"):
        return format_seconds(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def section(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The fact ``name`` if it is a table, else an empty table."""
    value = facts.get(name)
    return value if isinstance(value, dict) else {}


def device_words(device: Device | None) -> str:
    """The kind of device. Only a CUDA device is called a GPU."""
    if device is None:
        return "no device recorded"
    return {"host": "host device, no GPU", "cuda": "GPU"}.get(device.kind, "device")


def title(summary: Summary) -> str:
    """Title of the page: model and residency settings, else the command."""
    model = section(summary.facts, Fact.MODEL).get("name")
    settings = section(summary.facts, Fact.POLICY)
    parts = [str(model)] if model else [" ".join(summary.header.command) or "Recording"]
    if policy := settings.get("policy"):
        keep = settings.get("keep")
        parts.append(str(policy) if keep is None or policy == "off" else f"{policy}, keep {keep}")
    return plain(" · ".join(parts), limit=120)


def subtitle(summary: Summary) -> str:
    """Start time, host, process and device."""
    header = summary.header
    started = datetime.fromtimestamp(header.started_at_ns / 1e9, UTC)
    parts = [f"{started:%Y-%m-%d %H:%M:%S} UTC", f"host {header.host}", f"process {header.pid}"]
    if devices := summary.used_devices:
        host = ", no GPU" if devices[0].is_host else ""
        held = f", peak {summary.held_words}" if len(devices) > 1 else ""
        parts.append(f"{summary.device_name}{host}{held}")
    return plain(" · ".join(parts))


def render_facts(summary: Summary) -> str:
    """Cards for the main facts and a table of the others."""
    facts = summary.facts
    cards = [_card("Recording", _recording(summary))]
    cards += [_card(label, section(facts, key)) for key, label in _CARDS if section(facts, key)]
    shown = {key for key, _ in _CARDS if section(facts, key)}
    rest = {key: value for key, value in sorted(facts.items()) if key not in shown}
    return (
        f'<section id="facts"><h2>What ran</h2><div class="facts">{"".join(cards)}</div>'
        f"{_rest(rest)}</section>"
    )


def _recording(summary: Summary) -> dict[str, object]:
    header = summary.header
    lines: dict[str, object] = {"state": str(summary.state), "run": header.run_id}
    if header.rank is not None:
        lines["rank"] = header.rank
    return lines | {"command": " ".join(header.command)}


def _card(label: str, lines: Mapping[str, object]) -> str:
    return f"<div><h3>{label}</h3>{_pairs(lines)}</div>"


def _pairs(lines: Mapping[str, object]) -> str:
    rows = "".join(
        f"<dt>{escape(_label(key))}</dt><dd>{escape(format_fact(key, value))}</dd>"
        for key, value in lines.items()
    )
    return f"<dl>{rows}</dl>"


def _label(key: str) -> str:
    return key.removesuffix("_bytes").removesuffix("_ns").replace("_", " ")


def _rest(facts: Mapping[str, object]) -> str:
    if not facts:
        return ""
    flat: dict[str, object] = {}
    for key, value in facts.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{name}": item for name, item in value.items()}
        else:
            flat[key] = value
    return f"<details><summary>More facts about the recording</summary>{_pairs(flat)}</details>"
