"""Where every byte of GPU memory is, why it ran out, and which setting would have avoided it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memscope.errors import MemscopeError
    from memscope.launch.record import record
    from memscope.probes.watch.watch import watch
    from memscope.reader.recording import Recording, open_recording
    from memscope.recorder.active import active_recorder
    from memscope.recorder.recorder import Recorder

__all__ = [
    "MemscopeError",
    "Recorder",
    "Recording",
    "active_recorder",
    "open_recording",
    "record",
    "watch",
]

_HOMES = {
    "MemscopeError": "memscope.errors",
    "Recorder": "memscope.recorder.recorder",
    "Recording": "memscope.reader.recording",
    "active_recorder": "memscope.recorder.active",
    "open_recording": "memscope.reader.recording",
    "record": "memscope.launch.record",
    "watch": "memscope.probes.watch.watch",
}


def __dir__() -> list[str]:
    """The public names, so that completion finds them before their first use."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: ``import memscope`` loads no pyarrow."""
    if name not in _HOMES:
        raise AttributeError(f"module 'memscope' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
