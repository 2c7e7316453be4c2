"""Choose the device of a run, and say why."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from memscope.errors import MemscopeError
from memscope_runners.memory.cuda_device import CudaDevice
from memscope_runners.memory.cuda_runtime import USE_HOST, find_index, load_bindings
from memscope_runners.memory.device import Device, HostDevice


@dataclass(frozen=True, slots=True)
class Choice:
    """A device name, "host" or "cuda:0", and one sentence that says why it was chosen."""

    name: str
    reason: str


def choose_device(name: str | None = None) -> Choice:
    """The device `name`, or the best one here. Raises MemscopeError if there is no such device."""
    if name == "host":
        return Choice("host", "The device is the host, as asked.")
    if name is not None:
        return Choice(f"cuda:{_usable_index(name)}", f"The device is {name}, as asked.")
    try:
        index = _usable_index("cuda")
    except MemscopeError as error:
        return Choice("host", f"The device is the host: {error.problem}")
    return Choice(f"cuda:{index}", f"The device is cuda:{index}; --device host is the other one.")


def make_device(name: str, limit_bytes: int | None = None, *, is_timing: bool = True) -> Device:
    """Open the device `name`. Raises MemscopeError."""
    if name == "host":
        return HostDevice(limit_bytes=limit_bytes)
    return CudaDevice(name, limit_bytes, is_timing=is_timing)


def kind_of(name: str) -> str:
    """The kind of a device name; the device need not exist."""
    return "host" if name == "host" else "cuda"


def _usable_index(name: str) -> int:
    """The index of a GPU that has everything the runner needs."""
    index = find_index(name)
    load_bindings()
    if importlib.util.find_spec("triton") is None:
        raise MemscopeError(
            "The GPU's kernels need Triton, which is not here.", f"pip install triton, {USE_HOST}"
        )
    return index
