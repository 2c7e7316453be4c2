"""Host memory by pages: anonymous mappings, and releasing pages of mapped files."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
import torch

MADV_DONTNEED = 4  # on Linux; of a private file mapping it drops the pages, not the file's bytes


def new_mapping(bytes: int) -> mmap.mmap:
    """A new anonymous mapping of zeros. Raises OSError."""
    return mmap.mmap(-1, bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def view_mapping(mapping: mmap.mmap) -> torch.Tensor:
    """A mapping as uint8 (bytes,); it is unmapped with its last view."""
    # numpy holds the mapping for as long as a view lives; torch.frombuffer does not.
    return torch.from_numpy(np.frombuffer(mapping, dtype=np.uint8))


def map_anonymous(bytes: int) -> torch.Tensor:
    """Zeros, uint8 (bytes,), in a new anonymous mapping. Raises OSError."""
    return view_mapping(new_mapping(bytes))


def copy_bytes(target: torch.Tensor, source: torch.Tensor) -> None:
    """memmove between contiguous tensors of one size, without Python's lock."""
    assert target.nbytes == source.nbytes
    ctypes.memmove(target.data_ptr(), source.data_ptr(), source.nbytes)


def is_of_file(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory is a mapped file; False if that is unknown."""
    address = tensor.data_ptr()
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                start, _, end = line.partition(" ")[0].partition("-")
                if int(start, 16) <= address < int(end, 16):
                    fields = line.split(maxsplit=5)
                    return int(fields[4]) != 0 and int(end, 16) >= address + tensor.nbytes
    except (OSError, ValueError, IndexError):
        return False
    return False


def release_pages(tensor: torch.Tensor) -> int:
    """Release the whole pages of a tensor that `is_of_file`. Returns their bytes.

    The system reads them again from the file when they are used. Memory without a file would
    lose its content.
    """
    if not sys.platform.startswith("linux"):
        return 0
    start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (tensor.data_ptr() + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if end <= start:
        return 0
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return end - start if madvise(start, end - start, MADV_DONTNEED) == 0 else 0
