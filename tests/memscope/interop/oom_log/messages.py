"""Out-of-memory messages with random numbers, written the way each version of torch writes them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def format_size(count: int) -> str:
    """c10's ``format_size``: two decimals in the largest unit that fits."""
    for unit, factor in UNITS:
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count} bytes"


def half_digit(count: int) -> float:
    """Half of 0.01 of the unit that ``count`` is printed in."""
    factor = next((factor for _, factor in UNITS if count >= factor), 0)
    return 0.005 * factor + 1e-3 * (factor > 0)


@dataclass(frozen=True, slots=True)
class Amounts:
    """What is true when memory runs out."""

    device: int
    requested: int
    total: int
    free: int
    allocated: int
    cached: int
    process: int
    private: int
    limit: int

    @property
    def reserved(self) -> int:
        return self.allocated + self.cached


EXAMPLE = Amounts(
    device=3,
    requested=2 * 2**30,
    total=80 * 2**30,
    free=2**30,
    allocated=70 * 2**30,
    cached=3 * 2**30,
    process=79 * 2**30,
    private=0,
    limit=60 * 2**30,
)


sizes = st.one_of(
    st.integers(0, 2**12), st.integers(2**20, 2**24), st.integers(2**30, 2**38), st.just(0)
)
sizes_bytes = st.builds(
    Amounts,
    device=st.integers(0, 15),
    requested=sizes,
    total=st.integers(2**30, 2**38),
    free=sizes,
    allocated=sizes,
    cached=sizes,
    process=sizes,
    private=sizes,
    limit=st.integers(2**30, 2**38),
)

MAX_SPLIT = (
    " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid"
    " fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
EXPANDABLE = (
    " If reserved but unallocated memory is large try setting {}=expandable_segments:True to avoid"
    " fragmentation.  See documentation for Memory Management "
    " (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)


def cached_form(f: Amounts) -> str:
    """torch 1.0 to 1.3."""
    return (
        f"RuntimeError: CUDA out of memory. Tried to allocate {format_size(f.requested)} "
        f"(GPU {f.device}; {format_size(f.total)} total capacity; {format_size(f.allocated)} "
        f"already allocated; {format_size(f.free)} free; {format_size(f.cached)} cached)"
    )


def reserved_form(f: Amounts) -> str:
    """torch 1.4 to 1.9."""
    return (
        f"RuntimeError: CUDA out of memory. Tried to allocate {format_size(f.requested)} "
        f"(GPU {f.device}; {format_size(f.total)} total capacity; {format_size(f.allocated)} "
        f"already allocated; {format_size(f.free)} free; {format_size(f.reserved)} reserved in "
        "total by PyTorch)"
    )


def limited_form(f: Amounts) -> str:
    """torch 1.10 to 2.0 under a memory fraction."""
    text = reserved_form(f).replace(" free; ", f" free; {format_size(f.limit)} allowed; ")
    return text.replace("RuntimeError", "torch.cuda.OutOfMemoryError") + MAX_SPLIT


def sentence_form(f: Amounts) -> str:
    """torch 2.1, misspelt."""
    return (
        f"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate "
        f"{format_size(f.requested)}. GPU {f.device} has a total capacty of "
        f"{format_size(f.total)} of which {format_size(f.free)} is free. Including non-PyTorch "
        f"memory, this process has {format_size(f.process)} memory in use. Of the allocated "
        f"memory {format_size(f.allocated)} is allocated by PyTorch, and {format_size(f.cached)} "
        "is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
        "setting max_split_size_mb to avoid fragmentation.  See documentation for Memory "
        "Management and PYTORCH_CUDA_ALLOC_CONF"
    )


def pools_form(f: Amounts) -> str:
    """torch 2.4 and later, under a memory fraction, with CUDA graphs."""
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
        f"{format_size(f.requested)}. GPU {f.device} has a total capacity of "
        f"{format_size(f.total)} of which {format_size(f.free)} is free. Process 6513 has "
        f"{format_size(f.process)} memory in use. {format_size(f.limit)} allowed; Of the "
        f"allocated memory {format_size(f.allocated)} is allocated by PyTorch, with "
        f"{format_size(f.private)} allocated in private pools (e.g., CUDA Graphs), and "
        f"{format_size(f.cached)} is reserved by PyTorch but unallocated."
        + EXPANDABLE.format("PYTORCH_CUDA_ALLOC_CONF")
    )


def oom_line(device: int, free_gib: float = 0.5) -> str:
    """One line for a device that is full of tensors."""
    sizes_bytes = replace(
        EXAMPLE,
        requested=2 * 2**30,
        free=round(free_gib * 2**30),
        allocated=77 * 2**30,
        cached=0,
        process=0,
        private=0,
        limit=2**37,
    )
    return pools_form(sizes_bytes).replace("GPU 3", f"GPU {device}").replace("\n", " ")


def common_form(f: Amounts) -> str:
    """torch 2.9 and later, on ROCm."""
    return (
        f"torch.OutOfMemoryError: HIP out of memory. Tried to allocate "
        f"{format_size(f.requested)}. GPU {f.device} has a total capacity of "
        f"{format_size(f.total)} of which {format_size(f.free)} is free. Of the allocated memory "
        f"{format_size(f.allocated)} is allocated by PyTorch, and {format_size(f.cached)} is "
        "reserved by PyTorch but unallocated." + EXPANDABLE.format("PYTORCH_ALLOC_CONF")
    )


def xpu_form(f: Amounts) -> str:
    """Intel's copy, which gives no free memory."""
    return (
        f"torch.OutOfMemoryError: XPU out of memory. Tried to allocate "
        f"{format_size(f.requested)}. GPU {f.device} has a total capacity of "
        f"{format_size(f.total)}. Of the allocated memory {format_size(f.allocated)} is allocated "
        f"by PyTorch, and {format_size(f.cached)} is reserved by PyTorch but unallocated. Please "
        "use `empty_cache` to release all unoccupied cached memory."
    )


def npu_form(f: Amounts) -> str:
    """Ascend's copy, which gives what is active."""
    return (
        f"RuntimeError: NPU out of memory. Tried to allocate {format_size(f.requested)} "
        f"(NPU {f.device}; {format_size(f.total)} total capacity; {format_size(f.allocated)} "
        f"already allocated; {format_size(f.allocated)} current active; {format_size(f.free)} "
        f"free; {format_size(f.reserved)} reserved in total by PyTorch){MAX_SPLIT}"
    )


def async_form(f: Amounts) -> str:
    """The back end cudaMallocAsync."""
    return (
        f"torch.OutOfMemoryError: Allocation on device {f.device} would exceed allowed memory. "
        f"(out of memory)\nCurrently allocated     : {format_size(f.allocated)}\n"
        f"Requested               : {format_size(f.requested)}\n"
        f"Device limit            : {format_size(f.total)}\n"
        f"Free (according to CUDA): {format_size(f.free)}\n"
        "PyTorch limit (set by user-supplied memory fraction)\n"
        "                        : 17179869184.00 GiB"
    )


def mps_form(f: Amounts) -> str:
    """Apple's devices."""
    return (
        f"RuntimeError: MPS backend out of memory (MPS allocated: {format_size(f.allocated)}, "
        f"other allocations: {format_size(f.cached)}, max allowed: {format_size(f.limit)}). Tried "
        f"to allocate {format_size(f.requested)} on private pool."
    )


def retry_form(f: Amounts) -> str:
    """The warning of torch 2.13 about an allocation that is tried again."""
    return (
        f"memory allocation failed with OOM on device {f.device} while trying to allocate "
        f"{f.requested} bytes (free: {f.free}, total: {f.total})."
    )


_WITHOUT_RESERVED = ("device", "requested", "total", "free", "allocated")
_ALL = (*_WITHOUT_RESERVED, "reserved")
# Each form and the numbers that its text gives.
FORMS = {
    cached_form: _ALL,
    reserved_form: _ALL,
    limited_form: (*_ALL, "limit"),
    sentence_form: _ALL,
    pools_form: (*_ALL, "limit", "private"),
    common_form: _ALL,
    xpu_form: ("device", "requested", "total", "allocated", "reserved"),
    npu_form: _ALL,
    async_form: _WITHOUT_RESERVED,
    mps_form: ("requested", "allocated", "reserved", "limit"),
    retry_form: ("device", "requested", "total", "free"),
}
