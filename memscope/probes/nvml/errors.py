"""What an error of NVML means, and how to fix it."""

from __future__ import annotations

from dataclasses import dataclass

# Name of pynvml's exception without its prefix → cause, remedy.
_KNOWN = {
    "LibraryNotFound": ("no NVIDIA driver is installed", "Install the NVIDIA driver."),
    "DriverNotLoaded": ("the NVIDIA driver is not loaded", "Load it: modprobe nvidia."),
    "LibRmVersionMismatch": (
        "the driver's library and its kernel module have different versions",
        "Reload the nvidia module, or restart the machine: the driver was upgraded meanwhile.",
    ),
    "NoPermission": (
        "the driver refuses this user",
        "On a MIG card ask for the instance by its UUID; else run as a user who may.",
    ),
    "NotSupported": ("the driver does not support this here", ""),
    "FunctionNotFound": ("the driver is too old for this", "Upgrade the driver."),
    "ArgumentVersionMismatch": ("the driver is too old for this", "Upgrade the driver."),
    "GpuIsLost": (
        "the GPU has fallen off the bus",
        "See `dmesg | grep -i xid`; it comes back with a reset of the GPU or a restart.",
    ),
    "ResetRequired": ("the GPU must be reset", "Reset it: nvidia-smi --gpu-reset."),
    "Unknown": (
        "the driver gives no reason",
        "In a container, start it again: `systemctl daemon-reload` takes GPUs away from running "
        "ones.",
    ),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something cannot be read. ``fix`` is empty if there is no fix."""

    reason: str
    fix: str = ""


def explain(error: BaseException) -> Problem:
    """Reason and fix for an error of NVML or of its import."""
    if isinstance(error, ImportError):
        return Problem("nvidia-ml-py is not installed", "pip install nvidia-ml-py")
    name = type(error).__name__
    short = name.removeprefix("NVMLError_")
    if short in _KNOWN:
        reason, fix = _KNOWN[short]
        return Problem(f"{reason} (NVML: {short})", fix)
    return Problem(f"{name}: {' '.join(str(error).split())[:200]}")
