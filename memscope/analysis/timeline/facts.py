"""Facts of a recording as typed values. A value that makes no sense counts as missing.

Every function takes facts as key → data, like ``Timeline.facts`` and ``Summary.facts``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memscope.facts import FIRST_DEVICE, DeviceFact, Fact
from memscope.plan import POLICIES, Needs, Plan, Window

MAX_LAYERS = 65_535
MAX_VERSIONS = 40
# Later keys win: what the program says about itself goes last.
_VERSION_FACTS = (Fact.NVML_DRIVER, Fact.TORCH_VERSION, Fact.VERSIONS)

Facts = Mapping[str, Any]


def field_of(facts: Facts, key: str, field: str) -> Any:
    """One field of a fact that is a dict; None if there is none."""
    data = facts.get(key)
    return data.get(field) if isinstance(data, dict) else None


def as_count(value: object) -> int | None:
    """``value`` if it is a whole number that fits a column, from 0 up; else None."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < 1 << 62 else None


def count_of(facts: Facts, key: str, field: str) -> int | None:
    """One field of a fact if it is a whole number of 0 or more, else None."""
    return as_count(field_of(facts, key, field))


def _text_of(facts: Facts, key: str, field: str) -> str | None:
    value = field_of(facts, key, field)
    return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class Device:
    """A device as the program or torch described it. ``kind`` is "host" or "cuda"."""

    name: str
    kind: str
    total_bytes: int | None
    limit_bytes: int | None

    @property
    def is_host(self) -> bool:
        """Whether this is host memory, so GPU metrics do not apply."""
        return self.kind == "host"

    @property
    def usable_bytes(self) -> int | None:
        """The device's memory or the limit set on it in bytes, whichever is less."""
        sizes = [size for size in (self.total_bytes, self.limit_bytes) if size]
        return min(sizes, default=None)


def read_devices(facts: Facts) -> dict[int, Device]:
    """Index → device, as the program named it or torch used it."""
    used = DeviceFact.CUDA.devices(facts)
    named = {0: FIRST_DEVICE} if FIRST_DEVICE in facts else {}
    return {
        index: _read_device(facts, key)
        for index, key in sorted((used | named).items())
        if isinstance(facts[key], dict)
    }


def _read_device(facts: Facts, key: str) -> Device:
    return Device(
        name=str(field_of(facts, key, "name")),
        kind=str(field_of(facts, key, "kind")),
        total_bytes=count_of(facts, key, "total_bytes"),
        limit_bytes=count_of(facts, key, "limit_bytes"),
    )


def name_devices(devices: Sequence[Device]) -> str:
    """ "H200", "2 × H200", or "H200 and 1 more" if they differ; "" if there is none."""
    if not devices:
        return ""
    name, count = devices[0].name, len(devices)
    if any(device.name != name for device in devices):
        return f"{name} and {count - 1} more"
    return name if count == 1 else f"{count} × {name}"


@dataclass(frozen=True, slots=True)
class Model:
    """The model that ran. ``layers`` excludes lm_head; ``fixed_bytes`` never leave the device."""

    name: str | None
    layers: int | None
    entries_per_layer: int | None
    weights_bytes: int | None
    fixed_bytes: int | None


def read_model(facts: Facts) -> Model:
    """The model; fields are None if the program did not say."""
    layers = count_of(facts, Fact.MODEL, "layers")
    return Model(
        name=_text_of(facts, Fact.MODEL, "name"),
        layers=layers if layers is not None and 1 <= layers < MAX_LAYERS else None,
        entries_per_layer=count_of(facts, Fact.MODEL, "entries_per_layer"),
        weights_bytes=count_of(facts, Fact.MODEL, "weights_bytes"),
        fixed_bytes=count_of(facts, Fact.MODEL, "fixed_bytes"),
    )


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """How the runner kept weights: residency policy and its keep, allocator, unit, prefetch."""

    policy: str | None
    keep: int | None
    allocator: str | None
    unit: str | None
    prefetch: bool


def read_policy(facts: Facts) -> PolicySettings:
    """The settings; fields are None if the program did not say."""
    return PolicySettings(
        policy=_text_of(facts, Fact.POLICY, "policy"),
        keep=count_of(facts, Fact.POLICY, "keep"),
        allocator=_text_of(facts, Fact.POLICY, "allocator"),
        unit=_text_of(facts, Fact.POLICY, "unit"),
        prefetch=bool(field_of(facts, Fact.POLICY, "prefetch")),
    )


def read_plan(facts: Facts) -> Plan | None:
    """The plan made before the run; None if there is none, or if part of it makes no sense.

    Optional parts (KV cache, fixed weights, headroom) count as 0 bytes if they are missing.
    """
    data = facts.get(Fact.PLAN)
    if not isinstance(data, dict):
        return None
    optional = {"kv_bytes": 0, "fixed_bytes": 0, "headroom_bytes": 0}
    names = ("slab_bytes", "head_bytes", *optional, "limit_bytes")
    counts = [as_count((optional | data).get(name)) for name in names]
    *sizes, limit = [count for count in counts if count is not None] or [0]
    layers, policy, keep = as_count(data.get("layers")), data.get("policy"), data.get("keep")
    if len(sizes) + 1 < len(names) or layers is None or not 1 <= layers < MAX_LAYERS:
        return None
    if not isinstance(policy, str) or policy not in POLICIES or as_count(keep) != keep:
        return None
    window = Window(policy, keep, bool(data.get("prefetch")))
    return Plan(Needs(layers, *sizes), window, limit)


def read_versions(facts: Facts) -> dict[str, Any]:
    """Name → version of torch, CUDA, the driver and others; at most ``MAX_VERSIONS``."""
    versions: dict[str, Any] = {}
    for key in _VERSION_FACTS:
        said = facts.get(key)
        versions |= said if isinstance(said, dict) else {}
    return dict(list(versions.items())[:MAX_VERSIONS])
