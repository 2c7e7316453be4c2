"""What advice is made from: a message, its balance, and what the log says of its program."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from memscope.analysis.diagnosis.balance import Balance
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.torch import OomMessage

_ALLOCATORS = {
    "": "PYTORCH_CUDA_ALLOC_CONF",
    "CUDA": "PYTORCH_CUDA_ALLOC_CONF",
    "HIP": "PYTORCH_HIP_ALLOC_CONF",
    "NPU": "PYTORCH_NPU_ALLOC_CONF",
}
_TORCH_WORDS = re.compile(r"OutOfMemoryError|[A-Z]{2,8}outofmemory")
_COMMON_NAME_SINCE = (2, 9)


@dataclass(frozen=True, slots=True)
class Situation:
    """One message in its log."""

    message: OomMessage
    balance: Balance
    context: LogContext
    device_name: str = ""

    @property
    def place(self) -> str:
        """Which device, as a sentence names it."""
        message = self.message
        name = "the MPS device" if message.kind == "mps" else self.device_name or "the device"
        if message.device is not None and not self.device_name:
            kind = "GPU" if message.backend in ("", "CUDA", "HIP", "XPU") else message.backend
            name = f"{kind} {message.device}"
        return f"{name} ({torch_size(message.total.bytes)})" if message.total else name

    @property
    def variable(self) -> str:
        """The environment variable of torch's allocator, "" where the device has none."""
        if self.message.variable or self.context.setting_variable:
            return self.message.variable or self.context.setting_variable
        name = _ALLOCATORS.get(self.message.backend, "")
        is_common = self.context.torch_version >= _COMMON_NAME_SINCE
        return "PYTORCH_ALLOC_CONF" if name and is_common else name

    @property
    def can_expand(self) -> bool:
        """Whether this torch knows expandable segments (since 2.1)."""
        message = self.message
        if message.backend not in _ALLOCATORS or message.kind != "torch":
            return False
        return (
            message.is_sentence
            or message.hint == "expandable_segments"
            or self.context.torch_version >= (2, 1)
        )

    @property
    def is_loading(self) -> bool:
        """Whether an inference server was still reading the weights of its model."""
        return self.context.is_loading and bool(self.context.server)

    @property
    def is_library(self) -> bool:
        """Whether a library or the driver ran out, whose errors are not worded as torch's."""
        message = self.message
        return message.kind == "bare" and _TORCH_WORDS.match(message.detail) is None

    @property
    def wanted(self) -> int:
        """Bytes asked for."""
        return self.message.requested.bytes if self.message.requested else 0

    @property
    def shortfall(self) -> int:
        """Bytes that the driver lacked for the request, cached ones left out."""
        room = self.balance.room
        return max(self.wanted - room.bytes, 0) if room else 0


def torch_size(count: int) -> str:
    """Bytes as torch prints them, so that numbers are found again in the log ("10.84 GiB")."""
    size = abs(count)
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count} bytes"


def lower_share(share: float, free_bytes: int, total_bytes: int) -> float:
    """A share of the card lower by at least ``free_bytes``, in steps of 0.01."""
    return round(share - _steps(free_bytes, total_bytes) / 100, 2)


def raise_share(share: float, more_bytes: int, total_bytes: int) -> float:
    """A share of the card higher by at least ``more_bytes``, in steps of 0.01."""
    return round(share + _steps(more_bytes, total_bytes) / 100, 2)


def _steps(count: int, total_bytes: int) -> int:
    """Hundredths of the card that ``count`` bytes take, whole ones; what rounding adds is none."""
    return max(math.ceil(100 * count / total_bytes - 1e-9), int(count > 0))
