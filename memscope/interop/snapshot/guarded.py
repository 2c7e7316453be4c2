"""Examines an untrusted file in a child process with a memory limit and a time limit.

The child calls one of our functions and returns JSON. If it dies, hangs or runs out of memory, the
user gets one sentence. The memory limit needs RLIMIT_AS (Linux); elsewhere only time is limited.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memscope.errors import MemscopeError
from memscope.units import format_bytes

# -P: a module beside the file that is examined must never be imported.
_PROGRAM = (
    "import sys; sys.path.append({root!r}); "
    "from memscope.interop.snapshot.guarded_child import main; sys.exit(main())"
)
_TARGET_MODULES = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one file may use: bytes of memory for each of its unpacked bytes, and seconds."""

    bytes_per_byte: int = 8
    floor_bytes: int = 384 << 20
    floor_seconds: float = 30.0
    seconds_per_gibibyte: float = 240.0

    def seconds(self, size: int) -> float:
        """Seconds allowed for a file of ``size`` bytes on disk."""
        return self.floor_seconds + self.seconds_per_gibibyte * size / (1 << 30)


DEFAULT = Allowance()


def examine(
    target: str, path: str | os.PathLike[str], *, allowance: Allowance = DEFAULT, **options: Any
) -> dict[str, Any]:
    """Call ``target`` ("package.module:function") on the file in a child, and return its result.

    It gets the open file, its ``size`` and ``options``. Options and result are JSON.
    Raises MemscopeError, which begins with the file's name.
    """
    size = file_size(path)
    request = {
        "target": target,
        "path": os.fspath(path),
        "options": options,
        "bytes_per_byte": allowance.bytes_per_byte,
        "floor_bytes": allowance.floor_bytes,
        "seconds": allowance.seconds(size),
    }
    code, output = _run(request, allowance.seconds(size), path)
    if code != 0:
        raise MemscopeError(
            f"{path} {_fate(code)}", "Do not open it by other means; dump it again."
        )
    answer: dict[str, Any] = json.loads(output)
    if "problem" in answer:
        raise MemscopeError(f"{path} {answer['problem']}", answer["next_step"])
    result: dict[str, Any] = answer["result"]
    return result


def file_size(path: str | os.PathLike[str]) -> int:
    """The size of a readable file in bytes. Raises MemscopeError."""
    try:
        with open(path, "rb") as stream:
            if not Path(path).is_file():
                raise MemscopeError(f"{path} is not a file.", "Name a snapshot file.")
            return os.fstat(stream.fileno()).st_size
    except OSError as error:
        reason = error.strerror or "it cannot be opened"
        raise MemscopeError(f"{path} cannot be read: {reason}.", "Check its name.") from None


def free_memory_bytes() -> int | None:
    """Bytes that this machine and its control group still have free, None if unknown."""
    found = [
        size for size in (_available_bytes(), *(_group_bytes(each) for each in _GROUPS)) if size
    ]
    return min(found, default=None)


def too_large(size: int, free: int) -> MemscopeError:
    """The error for a file that needs more memory than is free."""
    return MemscopeError(
        f"is too large to read here: {format_bytes(size)} once unpacked, up to 8 times that in "
        f"memory, and {format_bytes(free)} is free.",
        "Open it on a machine with more memory, or record less: "
        "torch.cuda.memory._record_memory_history(max_entries=100000).",
    )


def _run(request: dict[str, Any], seconds: float, path: Any) -> tuple[int, bytes]:
    program = _PROGRAM.format(root=str(_TARGET_MODULES))
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    ) as child:
        try:
            output, _ = child.communicate(json.dumps(request).encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            raise MemscopeError(
                f"{path} was not read within {seconds:.0f} s.",
                "It is damaged, or holds more history than can be read here: record less.",
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
    return child.returncode, output


def _fate(code: int) -> str:
    if code < 0:
        name = signal.Signals(-code).name if -code in list(signal.Signals) else str(-code)
        return f"ended the process that read it ({name}): it is damaged or made to do harm."
    return "could not be read: the process that read it failed."


_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


def _available_bytes() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None


def _group_bytes(files: tuple[str, str]) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        most, used = (int(Path(file).read_text()) for file in files)
        return max(most - used, 1)
    return None
