"""A metric as measured, or why it was not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from memscope.units import format_value


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a metric has no value: nothing measured it, or it does not apply to this run."""

    reason: str
    is_applicable: bool = True


@dataclass(frozen=True, slots=True)
class Highest:
    """A value of one device: the highest of those that the process used, where it used several.

    ``is_lowest``: the lowest of them instead.
    """

    value: float
    device: int
    devices: int
    is_lowest: bool = False

    @property
    def place(self) -> str | None:
        """The device, where there are several."""
        return f"cuda:{self.device}" if self.devices > 1 else None

    @property
    def of(self) -> str | None:
        """The same in words."""
        rank = "lowest" if self.is_lowest else "highest"
        return f"{self.place}, the {rank} of {self.devices} GPUs" if self.place else None


@dataclass(frozen=True, slots=True)
class Negligible:
    """A value that no default limit judges, and why: what it is a ratio of is too small."""

    value: Highest
    reason: str


def highest_of(values: Mapping[int, float], *, is_lowest: bool = False) -> Highest:
    """The highest of device → value, or the lowest; the first of equals."""
    choose = min if is_lowest else max
    found = on_devices(values, is_lowest=is_lowest)
    device = choose(found, key=lambda each: found[each])
    return Highest(found[device], device, len(found), is_lowest)


def on_devices(values: Mapping[int, float], *, is_lowest: bool = False) -> dict[int, float]:
    """Device → value, where what was read without a device, −1, is of the first."""
    first = next((device for device in values if device >= 0), 0)
    choose = min if is_lowest else max
    found: dict[int, float] = {}
    for place, value in values.items():
        device = place if place >= 0 else first
        found[device] = choose(value, found.get(device, value))
    return found


Measured = float | Missing


@dataclass(frozen=True, slots=True)
class Metric:
    """``value`` in ``unit``; None where it has none, and ``reason`` says why.

    A metric that does not apply (``is_applicable`` False) is no failure to measure it. One that is
    negligible has a value and a reason why defaults do not judge it. ``device`` and ``of``: the one
    that it is of ("cuda:1"), and in words, where the process used several.
    """

    name: str
    value: float | None
    unit: str
    reason: str | None = None
    is_applicable: bool = True
    is_negligible: bool = False
    device: str | None = None
    of: str | None = None


def value_words(value: float, unit: str, of: str | None) -> str:
    """A value that is there, for people, with the device that it is ``of``."""
    return format_value(value, unit) + (f" ({of})" if of else "")


def make_metric(name: str, unit: str, measured: Measured | Negligible | Highest) -> Metric:
    """The metric of what was measured, or of why not."""
    if isinstance(measured, Highest):
        value = float(measured.value)
        return Metric(name, value, unit, device=measured.place, of=measured.of)
    if isinstance(measured, Negligible):
        metric = make_metric(name, unit, measured.value)
        return replace(metric, reason=measured.reason, is_negligible=True)
    if isinstance(measured, Missing):
        return Metric(name, None, unit, measured.reason, measured.is_applicable)
    return Metric(name, float(measured), unit)
