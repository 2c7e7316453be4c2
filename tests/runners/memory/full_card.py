"""A card without a free byte."""

from __future__ import annotations

import gc
import time

import torch

from memscope_runners.memory.cuda_runtime import CudaFailed, CudaRuntime

MIB = 1 << 20
SETTLE_SECONDS = 0.5  # processes of the test before may still give memory back


def fill_card(runtime: CudaRuntime) -> list[int]:
    """Take what the driver gives, down to pieces of 2 MiB, and what it gives a moment later.

    torch's cache is emptied first: the runner empties it when the card is full.
    """
    gc.collect()
    torch.cuda.empty_cache()
    addresses = _take_all(runtime)
    time.sleep(SETTLE_SECONDS)
    return addresses + _take_all(runtime)


def _take_all(runtime: CudaRuntime) -> list[int]:
    addresses, size = [], 1 << 36
    while size >= 2 * MIB:
        try:
            addresses.append(runtime.malloc(size))
        except CudaFailed as error:
            if not error.is_out_of_memory:
                raise
            size //= 2
    return addresses
