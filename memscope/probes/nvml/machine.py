"""This machine's GPUs now, from NVML and /proc only: no torch, and no CUDA context."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memscope.probes.nvml.cards import check_memory, process_size
from memscope.probes.nvml.errors import Problem, explain
from memscope.probes.process_table import PROC, ProcessEntry, is_in_container, read_process

LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU or MIG instance. Sizes in bytes, None if the driver does not tell.

    With an old driver ``used_bytes`` include the driver's own part; ``reserved_bytes`` is then
    None. ``processes``: pid → bytes. ``missing``: what could not be read → why.
    """

    index: str
    name: str
    uuid: str | None
    total_bytes: int | None
    free_bytes: int | None
    used_bytes: int | None
    reserved_bytes: int | None
    processes: dict[int, int | None]
    missing: dict[str, Problem] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MachineReading:
    """All cards and the processes on them. ``problem``: why there are none."""

    driver: str | None
    cards: tuple[Card, ...]
    entries: dict[int, ProcessEntry]
    is_container: bool
    problem: Problem | None = None


def read_machine(nvml: Any = None, proc: Path = PROC) -> MachineReading:
    """Read all cards. ``nvml``: the module pynvml, imported if None."""
    try:
        nvml = nvml or importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception as error:
        return MachineReading(None, (), {}, is_in_container(proc), explain(error))
    try:
        cards = tuple(_read_cards(nvml))
        driver = _text(_ask(nvml.nvmlSystemGetDriverVersion))
    finally:
        _ask(nvml.nvmlShutdown)
    pids = {pid for card in cards for pid in card.processes}
    found = {pid: read_process(pid, proc) for pid in sorted(pids)}
    entries = {pid: entry for pid, entry in found.items() if entry is not None}
    problem = None if cards else Problem("the driver lists no GPU")
    return MachineReading(driver, cards, entries, is_in_container(proc), problem)


def _read_cards(nvml: Any) -> Iterator[Card]:
    for index in range(_ask(nvml.nvmlDeviceGetCount) or 0):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except Exception as error:  # a lost card: the others go on
            missing = {"device": explain(error)}
            yield Card(str(index), "GPU", None, None, None, None, None, {}, missing)
            continue
        instances = tuple(_mig_handles(nvml, handle))
        if not instances:
            yield _read_card(nvml, handle, str(index))
        for number, instance in enumerate(instances):
            yield _read_card(nvml, instance, f"{index}:{number}")


def _mig_handles(nvml: Any, handle: Any) -> Iterator[Any]:
    """MIG instances of a card. In MIG mode the card itself refuses to answer for them."""
    mode = _ask(nvml.nvmlDeviceGetMigMode, handle)
    if not mode or not mode[0]:
        return
    for number in range(_ask(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        instance = _ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        if instance is not None:
            yield instance


def _read_card(nvml: Any, handle: Any, index: str) -> Card:
    missing: dict[str, Problem] = {}
    memory = _read_memory(nvml, handle, missing)
    total = _size(memory, "total")
    return Card(
        index=index,
        name=_text(_ask(nvml.nvmlDeviceGetName, handle)) or "GPU",
        uuid=_text(_ask(nvml.nvmlDeviceGetUUID, handle)),
        total_bytes=total,
        free_bytes=_size(memory, "free"),
        used_bytes=_size(memory, "used"),
        reserved_bytes=_size(memory, "reserved"),
        processes=_read_processes(nvml, handle, total, missing),
        missing=missing,
    )


def _read_memory(nvml: Any, handle: Any, missing: dict[str, Problem]) -> Any | None:
    try:
        return check_memory(nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    except Exception as error:
        newer = error
    try:
        memory = check_memory(nvml.nvmlDeviceGetMemoryInfo(handle))
    except Exception as error:
        missing["memory"] = explain(error)
        return None
    missing["driver-reserved"] = explain(newer)
    return memory


def _read_processes(
    nvml: Any, handle: Any, total: int | None, missing: dict[str, Problem]
) -> dict[int, int | None]:
    found: dict[int, int | None] = {}
    for name in LISTS:
        try:
            listed = getattr(nvml, name)(handle)
        except Exception as error:
            if name == LISTS[0]:
                missing["processes"] = explain(error)
            continue
        for process in listed:
            size = process_size(process.usedGpuMemory, total)
            found[process.pid] = max(found.get(process.pid) or 0, size or 0) or size
    if found and all(size is None for size in found.values()):
        missing["process bytes"] = Problem("the driver gives no memory of a process")
    return found


def _ask(call: Any, *arguments: Any) -> Any | None:
    try:
        return call(*arguments)
    except Exception:  # what is asked here is beside the point: absent is all that counts
        return None


def _size(memory: Any | None, name: str) -> int | None:
    value = getattr(memory, name, None)
    return None if value is None else int(value)


def _text(value: Any) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
