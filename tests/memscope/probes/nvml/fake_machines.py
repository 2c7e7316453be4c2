"""Machines as NVML shows them: drivers of several ages, WSL, MIG, a container, a lost GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

MIB = 1 << 20
NOT_AVAILABLE = (1 << 64) - 1


def error(name: str) -> Exception:
    """An error as pynvml names it."""
    return type(f"NVMLError_{name}", (Exception,), {})(name)


@dataclass(frozen=True)
class FakeCard:
    """One card. `failing`: what its calls raise, by a part of their name."""

    total: int = 1000 * MIB
    reserved: int = 50 * MIB
    used: int = 650 * MIB
    processes: Mapping[int, int | None] = field(default_factory=dict)
    failing: Mapping[str, str] = field(default_factory=dict)
    instances: tuple[FakeCard, ...] = ()

    @property
    def free(self) -> int:
        return self.total - self.reserved - self.used


class FakeMachine:
    """The module pynvml on a made-up machine."""

    nvmlMemory_v2 = 2

    def __init__(self, *cards: FakeCard, init_error: str | None = None) -> None:
        self.cards = cards
        self.init_error = init_error
        self.refusals = 0

    def nvmlInit(self) -> None:
        if self.init_error:
            raise error(self.init_error)

    def nvmlShutdown(self) -> None: ...

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.95.05"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeCard:
        return self._answer("handle", self.cards[index], lambda card: card)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeCard:
        return self._answer("handle", self.cards[0], lambda card: card)

    def nvmlDeviceGetName(self, card: FakeCard) -> str:
        return self._answer("name", card, lambda _: "NVIDIA Made-up")

    def nvmlDeviceGetUUID(self, card: FakeCard) -> str:
        return self._answer("uuid", card, lambda _: "GPU-0a")

    def nvmlDeviceGetMigMode(self, card: FakeCard) -> tuple[int, int]:
        return self._answer("mig", card, lambda card: (int(bool(card.instances)), 0))

    def nvmlDeviceGetMaxMigDeviceCount(self, card: FakeCard) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: FakeCard, index: int) -> FakeCard:
        if index >= len(card.instances):
            raise error("NotFound")
        return card.instances[index]

    def nvmlDeviceGetMemoryInfo(self, card: FakeCard, version: int | None = None) -> Any:
        if version is None:
            used = card.used + card.reserved
            sizes = SimpleNamespace(total=card.total, free=card.free, used=used)
            return self._answer("memory", card, lambda _: sizes)
        if "version 2" in card.failing:
            raise error(card.failing["version 2"])
        sizes = SimpleNamespace(
            total=card.total, free=card.free, used=card.used, reserved=card.reserved
        )
        return self._answer("memory", card, lambda _: sizes)

    def nvmlDeviceGetComputeRunningProcesses(self, card: FakeCard) -> list[Any]:
        listed = [SimpleNamespace(pid=p, usedGpuMemory=size) for p, size in card.processes.items()]
        return self._answer("processes", card, lambda _: listed)

    def nvmlDeviceGetGraphicsRunningProcesses(self, card: FakeCard) -> list[Any]:
        raise error("NotSupported")

    def nvmlDeviceGetMPSComputeRunningProcesses(self, card: FakeCard) -> list[Any]:
        return []

    def _answer(self, what: str, card: FakeCard, answer: Callable[[FakeCard], Any]) -> Any:
        name = card.failing.get(what) or card.failing.get("everything")
        if name:
            self.refusals += 1
            raise error(name)
        return answer(card)
