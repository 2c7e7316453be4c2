"""One failed request for memory: its message, its sizes, and what the log says around it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from memscope.analysis.diagnosis.balance import Balance
from memscope.interop.oom_log.context import LogContext
from memscope.interop.oom_log.formats.message import Backend
from memscope.interop.oom_log.formats.torch_message import TorchKind, TorchMessage
from memscope.units import torch_size

_VARIABLES = {
    "": "PYTORCH_CUDA_ALLOC_CONF",
    Backend.CUDA: "PYTORCH_CUDA_ALLOC_CONF",
    Backend.HIP: "PYTORCH_HIP_ALLOC_CONF",
    Backend.NPU: "PYTORCH_NPU_ALLOC_CONF",
}
_GPUS = ("", Backend.CUDA, Backend.HIP, Backend.XPU)
_TORCH_WORDS = re.compile(r"OutOfMemoryError|[A-Z]{2,8}outofmemory")
_COMMON_NAME_SINCE = (2, 9)


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """One failed request. ``are_others_known``: the other processes on the card can be named."""

    message: TorchMessage
    balance: Balance
    context: LogContext
    device_name: str = ""
    are_others_known: bool = False

    @property
    def place(self) -> str:
        """The device and its size, as a sentence names it."""
        message, name = self.message, self.device_name or "the device"
        if message.kind is TorchKind.MPS:
            name = "the MPS device"
        if message.device is not None and not self.device_name:
            name = f"{'GPU' if message.backend in _GPUS else message.backend} {message.device}"
        return f"{name} ({torch_size(message.total.bytes)})" if message.total else name

    @property
    def variable(self) -> str:
        """The environment variable of torch's allocator, "" if the device has none."""
        if self.message.variable or self.context.setting_variable:
            return self.message.variable or self.context.setting_variable
        name = _VARIABLES.get(self.message.backend, "")
        is_common = self.context.torch_version >= _COMMON_NAME_SINCE
        return "PYTORCH_ALLOC_CONF" if name and is_common else name

    @property
    def can_expand(self) -> bool:
        """Whether this torch has expandable segments (since 2.1)."""
        message = self.message
        if message.backend not in _VARIABLES or message.kind is not TorchKind.CACHING:
            return False
        is_hinted = message.hint.startswith("expandable")
        return message.is_sentence or is_hinted or self.context.torch_version >= (2, 1)

    @property
    def is_loading(self) -> bool:
        """Whether an inference server was still loading the weights of its model."""
        return self.context.is_loading and bool(self.context.server)

    @property
    def is_library(self) -> bool:
        """Whether a library or the driver ran out of memory, not torch's allocator."""
        message = self.message
        return message.kind is TorchKind.BARE and _TORCH_WORDS.match(message.detail) is None

    @property
    def wanted_bytes(self) -> int:
        """Bytes requested, 0 if unknown."""
        return self.message.requested.bytes if self.message.requested else 0

    @property
    def shortfall_bytes(self) -> int:
        """Bytes that the driver lacked for the request. Torch's cache is not counted."""
        room = self.balance.room
        return max(self.wanted_bytes - room.bytes, 0) if room else 0


def lower_share(share: float, free_bytes: int, total_bytes: int) -> float:
    """A share of the card that is lower by at least ``free_bytes``, in steps of 0.01."""
    return round(share - _hundredths(free_bytes, total_bytes) / 100, 2)


def raise_share(share: float, more_bytes: int, total_bytes: int) -> float:
    """A share of the card that is higher by at least ``more_bytes``, in steps of 0.01."""
    return round(share + _hundredths(more_bytes, total_bytes) / 100, 2)


def _hundredths(count: int, total_bytes: int) -> int:
    """Whole hundredths of the card that ``count`` bytes need, floating-point error ignored."""
    return max(math.ceil(100 * count / total_bytes - 1e-9), int(count > 0))
