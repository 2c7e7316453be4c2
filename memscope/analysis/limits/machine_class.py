"""The class of a machine: its GPU, the GPU's memory, and the version of torch."""

from __future__ import annotations

from dataclasses import dataclass

from memscope.analysis.metrics.memory import find_device
from memscope.analysis.timeline.facts import read_versions
from memscope.analysis.timeline.timeline import Timeline

SAME_SHARE = 0.02  # cards of one model differ by less


@dataclass(frozen=True, slots=True)
class MachineClass:
    """``kind`` is "cuda", "host" or "none". ``torch`` is major.minor, "" if not recorded."""

    device: str
    kind: str
    total_bytes: int | None
    torch: str

    def differences(self, other: MachineClass) -> tuple[str, ...]:
        """How this class differs from ``other``, in words. Empty if they are the same."""
        found = [
            f"{what} {theirs or 'unknown'} there, {own or 'unknown'} here"
            for what, own, theirs in (
                ("device", self.device, other.device),
                ("torch", self.torch, other.torch),
            )
            if own != theirs
        ]
        if not found and not self._is_as_large_as(other):
            found.append(f"memory {other.total_bytes} bytes there, {self.total_bytes} bytes here")
        return tuple(found)

    def _is_as_large_as(self, other: MachineClass) -> bool:
        if self.kind != "cuda" or self.total_bytes is None or other.total_bytes is None:
            return True  # on a host the limit matters, not the installed memory
        return abs(self.total_bytes - other.total_bytes) <= SAME_SHARE * self.total_bytes


def find_machine_class(timeline: Timeline) -> MachineClass:
    """The class of the machine on which a recording was made."""
    device = find_device(timeline)
    version = read_versions(timeline.facts).get("torch")
    torch = ".".join(version.split(".")[:2]) if isinstance(version, str) else ""
    if device is None:
        return MachineClass("no GPU", "none", None, torch)
    return MachineClass(device.name, device.kind, device.total_bytes, torch)
