"""Hand-written recordings of programs on a GPU: counters at 10 Hz, steps of 20 ms."""

from __future__ import annotations

from collections.abc import Callable

from memscope.events import Kind
from tests.memscope.analysis.build import Event, event, fact

MIB, GIB = 1 << 20, 1 << 30
STEP_NS = 20_000_000
READ_NS = 100_000_000
TOTAL = 80 * GIB

GPU = fact("cuda.0", {"name": "H200", "kind": "cuda", "total_bytes": TOTAL, "limit_bytes": TOTAL})


def sample(name: str, t_ns: int, size: int, **fields: int) -> Event:
    return event(Kind.SAMPLE, t_ns, name=name, bytes=size, device=0, **fields)


def run_program(
    steps: int,
    allocated: Callable[[int], int],
    reserved: Callable[[int], int],
    *,
    process: Callable[[int], int] | None = None,
    kv: Callable[[int], int] | None = None,
    peak: int | None = None,
    flush_every: int = 0,
) -> list[Event]:
    """``allocated(step)`` and the others say what the counters stand at in each step."""
    rows = [GPU, fact("probe.allocator_flush", {"watches": "torch.cuda.empty_cache()"})]
    for step in range(steps):
        start = step * STEP_NS
        if start % READ_NS == 0:
            at = start + STEP_NS // 2
            if kv is not None:
                rows.append(sample("model.kv_bytes", at, kv(step)))
            rows.append(sample("torch.allocated_bytes", at + 1, allocated(step)))
            rows.append(sample("torch.reserved_bytes", at + 2, reserved(step)))
            most = allocated(step) if peak is None else peak
            rows.append(sample("torch.peak_allocated_bytes", at + 3, most))
            if process is not None:
                rows.append(sample("nvml.process_bytes", at + 4, process(step)))
                rows.append(sample("nvml.free_bytes", at + 5, TOTAL - process(step)))
        if flush_every and step % flush_every == 0:
            data = {"caller": "/home/me/train.py:31 in step"}
            rows.append(
                event(
                    Kind.ALLOCATOR_FLUSH,
                    start + 15_000_000,
                    name="empty_cache",
                    bytes=GIB,
                    duration_ns=4_000_000,
                    data=data,
                )
            )
        rows.append(event(Kind.STEP, start + STEP_NS - 1, step=step, duration_ns=STEP_NS - 1))
    return rows
