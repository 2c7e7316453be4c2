"""A measured metric, or the reason why it has no value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from memscope.units import format_value


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a metric has no value: it was not measured, or does not apply to this program."""

    reason: str
    is_applicable: bool = True


class Extreme(StrEnum):
    """Which device a value is taken from if there are several."""

    HIGHEST = "highest"
    LOWEST = "lowest"


@dataclass(frozen=True, slots=True)
class DeviceValue:
    """The value of one device: the highest or lowest of all ``devices`` that the process used."""

    value: float
    device: int
    devices: int
    extreme: Extreme = Extreme.HIGHEST

    @property
    def place(self) -> str | None:
        """The device ("cuda:1"); None if there is only one."""
        return f"cuda:{self.device}" if self.devices > 1 else None

    @property
    def device_words(self) -> str | None:
        """The device in words ("cuda:1, the highest of 2 GPUs"); None if there is only one."""
        return f"{self.place}, the {self.extreme} of {self.devices} GPUs" if self.place else None


@dataclass(frozen=True, slots=True)
class Negligible:
    """A value too small for the default limits to judge."""

    value: DeviceValue
    reason: str


def highest_of(values: Mapping[int, float]) -> DeviceValue:
    """The device with the highest value; the first one if several are equal."""
    known = on_devices(values)
    device = max(known, key=lambda each: known[each])
    return DeviceValue(known[device], device, len(known))


def lowest_of(values: Mapping[int, float]) -> DeviceValue:
    """The device with the lowest value; the first one if several are equal."""
    known = on_devices(values, Extreme.LOWEST)
    device = min(known, key=lambda each: known[each])
    return DeviceValue(known[device], device, len(known), Extreme.LOWEST)


def on_devices(values: Mapping[int, float], extreme: Extreme = Extreme.HIGHEST) -> dict[int, float]:
    """Device → value. Readings without a device (−1) belong to the first one."""
    first = next((device for device in values if device >= 0), 0)
    choose = max if extreme == Extreme.HIGHEST else min
    known: dict[int, float] = {}
    for place, value in values.items():
        device = place if place >= 0 else first
        known[device] = choose(value, known.get(device, value))
    return known


Measured = float | Missing


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: ``value`` in ``unit``, or None and the ``reason``.

    ``is_applicable`` is False if this kind of program cannot have it, which is no failure.
    ``is_negligible``: it has a value, and ``reason`` says why default limits do not judge it.
    ``device`` ("cuda:1") and ``device_words``: the device of the value, if the process used
    several GPUs.
    """

    name: str
    value: float | None
    unit: str
    reason: str | None = None
    is_applicable: bool = True
    is_negligible: bool = False
    device: str | None = None
    device_words: str | None = None


def value_words(value: float, unit: str, device_words: str | None) -> str:
    """The value as text, with the device in brackets if there are several."""
    return format_value(value, unit) + (f" ({device_words})" if device_words else "")


def make_metric(name: str, unit: str, measured: Measured | Negligible | DeviceValue) -> Metric:
    """A metric from a measured value, or from the reason why there is none."""
    if isinstance(measured, DeviceValue):
        value = float(measured.value)
        return Metric(name, value, unit, device=measured.place, device_words=measured.device_words)
    if isinstance(measured, Negligible):
        metric = make_metric(name, unit, measured.value)
        return replace(metric, reason=measured.reason, is_negligible=True)
    if isinstance(measured, Missing):
        return Metric(name, None, unit, measured.reason, measured.is_applicable)
    return Metric(name, float(measured), unit)
