"""What can be read on this machine, what cannot, why, and how to fix it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from memscope.launch.program import hook_folder
from memscope.probes.cupti.buffers import CuptiAbsent, build
from memscope.probes.cupti.library import find_holder
from memscope.probes.nvml.machine import Card, MachineReading, read_machine
from memscope.probes.process_table import is_in_container

TORCH_SECONDS = 60
_ASK_TORCH = """
import ctypes, json, warnings
from memscope.probes.cupti.library import find_loaded, read_version
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import torch
    found = {"version": torch.__version__, "cuda": torch.version.cuda,
             "available": torch.cuda.is_available(), "devices": torch.cuda.device_count()}
path = find_loaded() if found["cuda"] else None
if path:
    library = ctypes.CDLL(path)
    found["cupti"] = {"version": read_version(library),
                      "names": hasattr(library, "cuptiActivityEnableAllocationSource")}
print(json.dumps(found | {"said": [str(warning.message) for warning in said]}))
"""


class CheckVerdict(StrEnum):
    """Whether something can be read on this machine."""

    OK = "ok"
    PARTLY = "partly"
    NO = "no"


OK, PARTLY, NO = CheckVerdict


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. ``fix`` is empty if there is nothing to fix."""

    name: str
    verdict: CheckVerdict
    found: str
    fix: str = ""


def run_checks(nvml: Any = None) -> list[Check]:
    """Run all checks. None of them raises. ``nvml``: the module pynvml, imported if None."""
    machine = read_machine(nvml)
    torch = ask_torch()
    return [
        check_package(),
        check_clash(),
        check_hook(),
        check_driver(),
        *check_nvml(machine),
        check_bindings(),
        *check_torch(torch, machine),
        check_cupti(torch),
        check_place(machine),
    ]


def check_package() -> Check:
    """Which memscope this is, and whether it records here."""
    place = Path(__file__).parents[1]
    text = f"memscope-torch {_version('memscope-torch') or '(not installed)'} in {place}"
    if platform.system() != "Linux":
        return Check("memscope", PARTLY, f"{text}; {platform.system()} can only read recordings")
    return Check("memscope", OK, f"{text}, Python {platform.python_version()}")


def check_clash() -> Check:
    """Whether another project named memscope, with the same package folder, is installed."""
    other = _version("memscope")
    if other is not None:
        fix = "pip uninstall memscope memscope-torch, then pip install memscope-torch"
        return Check("name", NO, f"another project, memscope {other}, is installed over this", fix)
    command, own = shutil.which("memscope"), Path(sys.executable).with_name("memscope")
    if command is not None and own.exists() and not os.path.samefile(command, own):
        fix = f"Call {own}, or put its folder first in PATH."
        return Check("name", PARTLY, f"the command memscope is {command}, another one", fix)
    return Check("name", OK, "no other memscope is installed")


def check_hook() -> Check:
    """Whether setting MEMSCOPE_RECORD is enough to record."""
    if hook_folder() is None:
        return Check("MEMSCOPE_RECORD", OK, "records by itself: the hook is installed")
    found = "does nothing: the hook is not installed; `memscope run` works without it"
    return Check("MEMSCOPE_RECORD", PARTLY, found, "pip install --force-reinstall memscope-torch")


def check_driver() -> Check:
    """The NVIDIA kernel driver."""
    version = Path("/proc/driver/nvidia/version")
    if version.exists():
        return Check("driver", OK, version.read_text(errors="replace").partition("\n")[0].strip())
    if is_wsl():
        return Check("driver", PARTLY, "WSL: this is the driver of Windows, through /dev/dxg")
    if Path("/dev/nvidiactl").exists():
        return Check("driver", PARTLY, "/dev/nvidiactl is here, /proc/driver/nvidia is not")
    fix = "On a machine with an NVIDIA GPU: install its driver; in a container: --gpus all."
    return Check("driver", NO, "no NVIDIA kernel driver is loaded", fix)


def check_nvml(machine: MachineReading) -> Iterator[Check]:
    """Each card: sizes, memory that the driver reserves, processes."""
    if machine.problem is not None:
        yield Check("NVML", NO, machine.problem.reason, machine.problem.fix)
        return
    yield Check("NVML", OK, f"driver {machine.driver}, {len(machine.cards)} GPUs")
    for card in machine.cards:
        yield check_card(card, machine)


def check_card(card: Card, machine: MachineReading) -> Check:
    """What can be read of one card, and what cannot."""
    kind = "MIG instance" if ":" in card.index else "GPU"
    name = f"{kind} {card.index}"
    if card.total_bytes is None:
        problem = card.missing.get("memory") or card.missing["device"]
        return Check(name, NO, f"{card.name}: {problem.reason}", problem.fix)
    gaps = [f"{what}: {problem.reason}" for what, problem in card.missing.items()]
    unseen = [pid for pid in card.processes if pid not in machine.entries]
    if unseen:
        gaps.append(f"{len(unseen)} of {len(card.processes)} processes are not visible here")
    fixes = [problem.fix for problem in card.missing.values() if problem.fix]
    if gaps:
        return Check(name, PARTLY, f"{card.name}: {'; '.join(gaps)}", " ".join(fixes))
    return Check(name, OK, f"{card.name}: memory, the driver's part and processes can be read")


def check_bindings() -> Check:
    """The module pynvml, and the deprecated package of the same name."""
    version = _version("nvidia-ml-py")
    if version is None:
        return Check("nvidia-ml-py", NO, "not installed", "pip install nvidia-ml-py")
    if _version("pynvml") is not None:
        found = f"{version}, and beside it pynvml, which is deprecated and warns at each import"
        return Check("nvidia-ml-py", PARTLY, found, "pip uninstall pynvml")
    return Check("nvidia-ml-py", OK, version)


def check_torch(torch: dict[str, Any] | str, machine: MachineReading) -> Iterator[Check]:
    """Torch, imported by another process: a broken torch cannot end this one."""
    if isinstance(torch, str):
        yield Check("torch", NO, torch, "pip install torch; without it memscope reads recordings.")
        return
    yield Check("torch", OK, f"{torch['version']}, built for CUDA {torch['cuda'] or 'none'}")
    if torch["available"]:
        yield Check("CUDA", OK, f"{torch['devices']} devices in torch")
    elif torch["cuda"] is None:
        fix = "Install torch with CUDA to record a GPU." if machine.cards else ""
        yield Check("CUDA", NO, "this torch is built without CUDA", fix)
    else:
        said = " ".join(torch["said"])[:200] or "torch finds no device"
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        if hidden is not None:
            said += f" (CUDA_VISIBLE_DEVICES={hidden})"
        yield Check("CUDA", NO, said, "See driver and NVML above.")


def check_cupti(torch: dict[str, Any] | str) -> Check:
    """CUPTI, which names allocations outside torch. It is opt-in; one tool at a time can use it."""
    found = torch.get("cupti") if isinstance(torch, dict) else None
    if not found:
        fix = "Install torch with CUDA, as pip has it: it brings CUPTI along."
        return Check("CUPTI", NO, "torch loads none: allocations outside it are one sum", fix)
    if any(map(_is_set, ("CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID"))):
        holder, fix = find_holder()
        return Check("CUPTI", NO, f"another tool holds it here: {holder}", fix)
    try:
        build()
    except CuptiAbsent as error:
        return Check("CUPTI", NO, error.problem.reason, error.problem.fix)
    said = f"version {found['version']}, of torch"
    if not found["names"]:
        fix = "A torch built for CUDA 12.8 or newer brings one that does."
        return Check("CUPTI", PARTLY, f"{said}: names no libraries, only their sum", fix)
    return Check("CUPTI", OK, f"{said}: memscope run --cupti names allocations outside torch")


def check_place(machine: MachineReading) -> Check:
    """Container, WSL and namespaces."""
    if is_wsl():
        found = "WSL: the driver gives no memory of a process"
        return Check("place", PARTLY, found, "Run on Linux itself for numbers of processes.")
    if machine.is_container or is_in_container():
        found = "a container: processes outside of it are not visible, and its pids are its own"
        return Check("place", PARTLY, found, "--pid=host shows them (docker run).")
    return Check("place", OK, "no container, no WSL")


def ask_torch() -> dict[str, Any] | str:
    """Version, CUDA and devices of torch; a sentence if torch cannot be imported."""
    try:
        importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
    command = [sys.executable, "-c", _ASK_TORCH]
    environment = {**os.environ, "MEMSCOPE_OFF": "1"}
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=TORCH_SECONDS, env=environment
        )
        found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
        return found
    except subprocess.TimeoutExpired:
        return f"does not start within {TORCH_SECONDS} s"
    except (ValueError, IndexError, OSError):
        last = run.stderr.strip().splitlines()[-1:] or [f"ends with code {run.returncode}"]
        return f"cannot be imported: {last[0][:200]}"


def is_wsl() -> bool:
    """Whether this is Linux under Windows."""
    return "microsoft" in platform.release().lower() or os.path.exists("/dev/dxg")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_set(name: str) -> bool:
    return bool(os.environ.get(name))
