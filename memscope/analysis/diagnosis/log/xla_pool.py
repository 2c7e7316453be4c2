"""XLA's pool of memory at the failure, and the fraction of the card that would have been enough.

JAX takes a pool of 0.75 of each GPU (https://docs.jax.dev/en/latest/gpu_memory_allocation.html)
and gives its arrays and programs memory from it. TensorFlow has the same allocator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from memscope.interop.oom_log.context import LogContext, XlaUser
from memscope.interop.oom_log.formats.message import Backend
from memscope.interop.oom_log.formats.xla import XlaKind, XlaMessage

DEFAULT_FRACTION = 0.75
# More than this share of a card cannot be had: context and libraries take the rest.
HIGHEST_FRACTION = 0.95
# JAX's two names of the fraction; only one may be set.
FRACTION_VARIABLES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"


@dataclass(frozen=True, slots=True)
class XlaPool:
    """XLA's pool at the failure. Sizes are None if the log does not give them."""

    message: XlaMessage
    context: LogContext

    @property
    def limit_bytes(self) -> int | None:
        """The size to which the pool may grow."""
        return self._account("xla_limit")

    @property
    def in_use_bytes(self) -> int | None:
        """What arrays and programs held."""
        return self._account("xla_in_use")

    @property
    def wanted_bytes(self) -> int:
        """Bytes requested, 0 if not given."""
        return self.message.requested.bytes if self.message.requested else 0

    @property
    def free_bytes(self) -> int | None:
        """Bytes that were free: on the device if the message says so, else in the pool."""
        if self.message.free is not None:
            return self.message.free.bytes
        if self.message.total is not None:
            return self.message.total.bytes
        if self.limit_bytes is None or self.in_use_bytes is None:
            return None
        return max(self.limit_bytes - self.in_use_bytes, 0)

    @property
    def missing_bytes(self) -> int:
        """Bytes that the request lacked, 0 if unknown."""
        return 0 if self.free_bytes is None else max(self.wanted_bytes - self.free_bytes, 0)

    @property
    def variable(self) -> str:
        """The variable that sets the fraction: the one in the log, else JAX's older name."""
        names = FRACTION_VARIABLES
        return next((name for name in names if name in self.context.options), names[1])

    @property
    def fraction(self) -> float | None:
        """The fraction of the card that the log names."""
        return self.context.option(self.variable)

    @property
    def needed_fraction(self) -> float | None:
        """The smallest fraction that would have held everything; None if unknown."""
        fraction = self.fraction or DEFAULT_FRACTION
        if self.context.xla is XlaUser.TORCH_XLA or self.message.kind is XlaKind.TENSORFLOW:
            return None
        if not self.limit_bytes or self.in_use_bytes is None or not 0 < fraction <= 1:
            return None
        needed = (self.in_use_bytes + self.wanted_bytes) * fraction / self.limit_bytes
        return math.ceil(100 * needed - 1e-9) / 100

    def _account(self, name: str) -> int | None:
        size = self.context.accounts.get(name)
        return None if size is None or self.message.backend == Backend.TPU else size.bytes
