"""The child's side of `memscope.interop.snapshot.guarded`: limits first, then the file."""

from __future__ import annotations

import gc
import json
import os
import sys
from importlib import import_module
from typing import IO, Any

from memscope.errors import MemscopeError
from memscope.interop.snapshot.guarded import free_memory_bytes, too_large
from memscope.interop.snapshot.plain_data import NEXT_STEP, measure, open_plain

try:
    import resource
except ImportError:  # Windows: the parent's time limit alone holds
    resource = None  # type: ignore[assignment]

# A file that cannot be held at twice its size need not be tried.
LEAST_RATIO = 2


def main() -> int:
    """Do what stands on stdin, answer on stdout, both JSON."""
    request = json.load(sys.stdin)
    answer = _answer(request)
    sys.stdout.write(json.dumps(answer, allow_nan=False))
    sys.stdout.flush()
    os._exit(0)  # millions of objects need not be freed one by one


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    module, _, name = request["target"].partition(":")
    function = getattr(import_module(module), name)
    gc.disable()
    _limit_time(request["seconds"])
    shortage = MemscopeError(
        f"takes more than {request['bytes_per_byte']} times its size in memory: it is damaged, "
        "or no memory snapshot.",
        NEXT_STEP,
    )
    try:
        with open(request["path"], "rb") as raw:
            stream = open_plain(raw)
            free = free_memory_bytes()
            size = _measure(stream, free, request["floor_bytes"])
            allowed = request["floor_bytes"] + request["bytes_per_byte"] * size
            if free is not None and allowed > max(free, request["floor_bytes"]):
                allowed, shortage = max(free, request["floor_bytes"]), too_large(size, free)
            _limit_memory(allowed)
            return {"result": function(stream, size=size, **request["options"])}
    except MemscopeError as error:
        return _refusal(error)
    except MemoryError:
        return _refusal(shortage)
    except OSError as error:
        return _refusal(MemscopeError(f"cannot be read: {error.strerror}.", NEXT_STEP))


def _refusal(error: MemscopeError) -> dict[str, Any]:
    return {"problem": error.problem, "next_step": error.next_step}


def _limit_time(seconds: float) -> None:
    """Ends this process should its parent be gone."""
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 5, int(seconds) + 10))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_memory(allowed: int) -> None:
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))


def _measure(stream: IO[bytes], free: int | None, floor: int) -> int:
    """Size of the file once unpacked. Raises MemscopeError where it cannot be held at all."""
    if free is None:
        return measure(stream, 1 << 60)
    most = max(free - floor, 0) // LEAST_RATIO
    size = measure(stream, most)
    if size > most:
        raise too_large(size, free)
    return size
