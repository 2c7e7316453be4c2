"""The card from its driver, by NVML: all processes, and what lies outside torch.

NVML is a library beside CUDA, so another thread may call it at any time.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from memscope.facts import DeviceFact, Fact
from memscope.probes.nvml.cards import check_memory, find_card, process_size
from memscope.probes.nvml.errors import Problem, explain
from memscope.probes.torch.allocator import cuda_torch

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

PROCESS_SECONDS = 1.0  # between lists of processes, which cost several times a reading
CHEAP_SECONDS = 200e-6  # a list that costs less is read whenever the used bytes have changed, to be
# of one moment with them; so is the recording's last one, whatever it costs
LOST = ("GpuIsLost", "ResetRequired", "Unknown", "Uninitialized")  # no call will succeed again


class NvmlProbe:
    """Records ``nvml.*`` for each device that torch has used, found by its UUID.

    What cannot be read is absent; the fact ``nvml`` says why, once.
    """

    name = "nvml"

    def __init__(self, nvml: Any = None) -> None:
        """``nvml``: the module pynvml (nvidia-ml-py); imported if None, once there is a device."""
        self._nvml = nvml
        self._is_ready = False
        self._cards: dict[int, Any] = {}
        self._totals: dict[int, int] = {}
        self._absent: dict[str, str] = {}
        self._used: dict[int, int] = {}
        self._listed_at: dict[int, float] = {}
        self._processes_costs: deque[float] = deque(maxlen=2)  # the first is of a cold call
        self._others: dict[int, dict[str, Any]] = {}

    def __call__(self, recorder: Recorder) -> None:
        torch = cuda_torch()
        if torch is None or "nvml" in self._absent:
            return
        known = len(self._absent)
        if self._start(recorder):
            self._find_cards(torch)
            for device, card in tuple(self._cards.items()):
                try:
                    has_changed = self._sample_memory(recorder, device, card)
                    if self._is_list_due(device, has_changed) or recorder.is_closing:
                        self._sample_processes(recorder, device, card)
                except _LostError as lost:  # its handle is not used again: that may crash
                    del self._cards[device]
                    self._lack(f"cuda:{device}", lost.error, "; lost while the program ran")
        if len(self._absent) > known:
            recorder.fact(Fact.NVML, {"absent": dict(self._absent)})

    def lacks_memory(self, device: int) -> bool:
        """Whether NVML was asked for a device's memory and does not tell."""
        names = ("nvml", f"cuda:{device}", "nvml.used_bytes")
        return any(name in self._absent for name in names)

    def _is_list_due(self, device: int, has_changed: bool) -> bool:
        costs, now = self._processes_costs, time.monotonic()
        is_cheap = len(costs) < 2 or min(costs) < CHEAP_SECONDS
        is_late = now - self._listed_at.get(device, -PROCESS_SECONDS) >= PROCESS_SECONDS
        is_due = is_late or (has_changed and is_cheap)
        if is_due:
            self._listed_at[device] = now
        return is_due

    def _start(self, recorder: Recorder) -> bool:
        if self._is_ready:
            return True
        try:
            if self._nvml is None:
                self._nvml = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
        except Exception as error:  # ImportError, NVMLError, OSError: the reason is all that counts
            self._lack("nvml", error)
            return False
        self._is_ready = True
        self._say_driver(recorder)
        return True

    def _say_driver(self, recorder: Recorder) -> None:
        with contextlib.suppress(Exception):  # whatever else it tells is worth as much without
            version = self._nvml.nvmlSystemGetDriverVersion()
            text = version.decode() if isinstance(version, bytes) else version  # of an old pynvml
            recorder.fact(Fact.NVML_DRIVER, {"driver": text})

    def _find_cards(self, torch: Any) -> None:
        for device in range(torch.cuda.device_count()):
            if device in self._cards or f"cuda:{device}" in self._absent:
                continue
            try:
                self._cards[device] = find_card(self._nvml, torch, device)
            except Exception as error:  # no uuid in old torch; an NVMLError; the others go on
                self._lack(f"cuda:{device}", error)

    def _sample_memory(self, recorder: Recorder, device: int, card: Any) -> bool:
        """Returns whether the used bytes differ from the last reading."""
        memory = self._read_memory(card)
        if memory is None:
            return False
        self._totals[device] = int(memory.total)
        for name, field in _FIELDS.items():
            value = getattr(memory, field, None)
            if value is not None:
                recorder.sample(f"nvml.{name}", bytes=int(value), device=device)
        used, self._used[device] = self._used.get(device), int(memory.used)
        return used != self._used[device]

    def _read_memory(self, card: Any) -> Any | None:
        """Version 2 tells the driver's own part; version 1 counts it as used."""
        if "nvml.used_bytes" in self._absent:
            return None
        if "nvml.driver_reserved_bytes" not in self._absent:
            try:
                version = self._nvml.nvmlMemory_v2
                return check_memory(self._nvml.nvmlDeviceGetMemoryInfo(card, version=version))
            except Exception as error:  # an old driver or an old pynvml: version 1 is left
                _raise_if_lost(error)
                self._lack("nvml.driver_reserved_bytes", error, "; nvml.used_bytes includes it")
        try:
            return check_memory(self._nvml.nvmlDeviceGetMemoryInfo(card))
        except Exception as error:
            _raise_if_lost(error)
            self._lack("nvml.used_bytes", error)
            return None

    def _sample_processes(self, recorder: Recorder, device: int, card: Any) -> None:
        start = time.perf_counter()
        try:
            processes = self._nvml.nvmlDeviceGetComputeRunningProcesses(card)
        except Exception as error:
            _raise_if_lost(error)
            self._lack("nvml.process_bytes", error)
            return
        self._processes_costs.append(time.perf_counter() - start)
        pid = os.getpid()
        own = next((process for process in processes if process.pid == pid), None)
        size = None if own is None else process_size(own.usedGpuMemory, self._totals.get(device))
        if size is not None:
            recorder.sample("nvml.process_bytes", bytes=size, device=device)
        elif own is not None:
            self._lack("nvml.process_bytes", "the driver gives no memory of a process")
        else:
            self._lack(
                "nvml.process_bytes",
                f"process {pid} is not among the {len(processes)} that the driver lists: "
                "in a container it has another number there",
            )

        self._say_others(recorder, device, processes, is_own_known=own is not None)

    def _say_others(
        self, recorder: Recorder, device: int, processes: list[Any], *, is_own_known: bool
    ) -> None:
        """Record the other processes of a card as the fact ``nvml.others.N``, if they have changed.

        If this process is not in the list, the pids belong to another namespace.
        """
        others = {
            str(each.pid): {
                "bytes": process_size(each.usedGpuMemory, self._totals.get(device)),
                "command": _command(each.pid) if is_own_known else None,
            }
            for each in processes
            if each.pid != os.getpid()
        }
        if others != self._others.get(device, {}):
            self._others[device] = others
            recorder.fact(DeviceFact.OTHER_PROCESSES.of(device), others)

    def _lack(self, name: str, error: Exception | str, consequence: str = "") -> None:
        if name not in self._absent:
            problem = explain(error) if isinstance(error, Exception) else Problem(error)
            self._absent[name] = f"{problem.reason}{consequence}"


class _LostError(Exception):
    """The card is gone. ``error``: what NVML said."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _raise_if_lost(error: Exception) -> None:
    if type(error).__name__.removeprefix("NVMLError_") in LOST:
        raise _LostError(error) from error


def _command(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


_FIELDS = {
    "total_bytes": "total",
    "free_bytes": "free",
    "used_bytes": "used",
    "driver_reserved_bytes": "reserved",
}
