"""A card without a free byte."""

from __future__ import annotations

from memscope_runners.memory.cuda_runtime import CudaFailed, CudaRuntime

MIB = 1 << 20


def fill_card(runtime: CudaRuntime) -> list[int]:
    """Takes what the driver gives, down to pieces of 2 MiB."""
    addresses, size = [], 1 << 36
    while size >= 2 * MIB:
        try:
            addresses.append(runtime.malloc(size))
        except CudaFailed as error:
            if not error.is_out_of_memory:
                raise
            size //= 2
    return addresses
