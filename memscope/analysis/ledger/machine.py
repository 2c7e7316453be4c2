"""Who holds the memory of each GPU of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from memscope.probes.nvml.machine import Card, MachineReading
from memscope.probes.process_table import ProcessEntry

SMALL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Holding:
    """Bytes of one holder on a GPU. ``bytes`` is None if they were not measured."""

    label: str
    bytes: int | None
    reason: str | None = None
    pid: int | None = None
    entry: ProcessEntry | None = None


@dataclass(frozen=True, slots=True)
class CardBalance:
    """The holdings on one GPU. Their bytes add up to its total."""

    card: Card
    holdings: tuple[Holding, ...]

    def to_json(self) -> dict[str, Any]:
        """The card as ``--json`` prints it."""
        card = self.card
        return {
            "index": card.index,
            "name": card.name,
            "uuid": card.uuid,
            "total_bytes": card.total_bytes,
            "lines": [_holding_json(holding) for holding in self.holdings],
            "missing": {
                name: {"reason": problem.reason, "fix": problem.fix or None}
                for name, problem in card.missing.items()
            },
        }


def balance_machine(reading: MachineReading) -> tuple[CardBalance, ...]:
    """The holdings on each GPU of ``reading``."""
    return tuple(CardBalance(card, tuple(_holdings(card, reading))) for card in reading.cards)


def _holdings(card: Card, reading: MachineReading) -> Iterator[Holding]:
    if card.used_bytes is None:
        problem = card.missing.get("memory") or card.missing.get("device")
        yield Holding("memory", None, problem.reason if problem else "not measured")
    else:
        yield Holding("free", card.free_bytes)
        reserved = card.missing.get("driver-reserved")
        reason = f"included in memory that no process owns: {reserved.reason}" if reserved else None
        yield Holding("driver-reserved", card.reserved_bytes, reason)
    for pid, size in sorted(card.processes.items(), key=lambda item: -(item[1] or 0)):
        yield _process(pid, size, reading.entries.get(pid), card)
    if card.used_bytes is not None:
        yield from _unowned(card, reading)


def _process(pid: int, size: int | None, entry: ProcessEntry | None, card: Card) -> Holding:
    lacking = card.missing.get("process bytes")
    reason = (
        None if size is not None else lacking.reason if lacking else "not reported by the driver"
    )
    if entry is None:
        unseen = "not visible here: it has ended, or runs in another container"
        reason = f"{reason}; {unseen}" if reason else unseen
    elif entry.is_orphan:
        reason = f"{reason}; its parent is gone" if reason else "its parent is gone"
    return Holding(f"process {pid}", size, reason, pid, entry)


def _unowned(card: Card, reading: MachineReading) -> Iterator[Holding]:
    """Used memory that belongs to no listed process."""
    owned = sum(size or 0 for size in card.processes.values())
    rest = (card.used_bytes or 0) - owned
    if abs(rest) >= SMALL_BYTES or (rest and card.reserved_bytes is None):
        yield Holding("no visible process", rest, _why_unowned(card, reading, rest))
    elif rest:
        yield Holding("no visible process", rest, "rounding of the driver")


def _why_unowned(card: Card, reading: MachineReading, rest: int) -> str:
    if rest < 0:
        return "processes share memory, so their sum is more than the used memory"
    if "processes" in card.missing:
        return f"the list of processes cannot be read: {card.missing['processes'].reason}"
    if any(size is None for size in card.processes.values()):
        return "the driver does not report the memory of some processes above"
    reasons = []
    if "driver-reserved" in card.missing:
        reasons.append("it includes the driver's own memory")
    if reading.is_container:
        reasons.append("processes outside this container are not visible here")
    elif not card.processes:
        reasons.append(
            "no process is listed: processes in containers, of other users or of graphics may be "
            "hidden, or a process ended without freeing its memory"
        )
    return "; ".join(reasons) or "memory of the driver, or of a process that is not listed"


def machine_json(reading: MachineReading) -> dict[str, Any]:
    """The machine as ``--json`` prints it."""
    problem = reading.problem
    return {
        "driver": reading.driver,
        "is_container": reading.is_container,
        "problem": None if problem is None else {"reason": problem.reason, "fix": problem.fix},
        "cards": [balance.to_json() for balance in balance_machine(reading)],
    }


def _holding_json(holding: Holding) -> dict[str, Any]:
    entry = holding.entry
    return {
        "label": holding.label,
        "bytes": holding.bytes,
        "reason": holding.reason,
        "pid": holding.pid,
        "command": entry and entry.command,
        "user": entry and entry.user,
        "container": entry and entry.container,
        "age_s": entry and entry.age_s,
        "is_orphan": entry and entry.is_orphan,
    }
