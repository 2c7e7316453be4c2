"""Ledger lines for memory that a process holds outside torch, from CUPTI and NVML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memscope.analysis.ledger.lines import Coverage, LedgerLine, absent, divide, read
from memscope.analysis.timeline.facts import as_count
from memscope.analysis.timeline.series import Series
from memscope.analysis.timeline.timeline import Timeline
from memscope.facts import DeviceFact, Fact, probe_fact
from memscope.probes.cupti.records import BINDINGS

MAX_LIBRARIES = 16
SETTLE_NS = 1_000_000_000
WORDS = {
    "stream_ordered": "stream-ordered pool",
    "cupti": "CUPTI's buffers",
    "libraries": "libraries' own allocations",
    "modules": "modules loaded later",
}
CUPTI_OFF = "CUPTI was off; --cupti turns it on"
NO_READING = "NVML reported no memory of this process while CUPTI was on"
LOADED = "growth of the process while code was loaded, minus all recorded calls"
LAST_POOL_CALL = "as of the last call of the pool"


def outside_lines(timeline: Timeline, device: int, raw_bytes: int) -> Iterator[LedgerLine]:
    """Lines for pool, CUPTI, libraries, modules and context.

    ``raw_bytes``: memory of the program's own driver calls. CUPTI counts it as cuda.bindings; it is
    subtracted here because it has a line of its own.
    """
    told = timeline.facts.get(DeviceFact.OUTSIDE_TORCH.of(device))
    if not isinstance(told, Mapping):
        reason = _absence(timeline)
        yield from (absent(key, words, reason) for key, words in WORDS.items())
        yield _context_line(timeline, device, {})
        return
    libraries, pools = _sizes(told.get("libraries")), _sizes(told.get("pools"))
    own = min(libraries.get(BINDINGS, 0), raw_bytes)
    own_of_pool = min(pools.get(BINDINGS, 0), raw_bytes - own)
    yield _pool_line(as_count(told.get("pools_bytes")), own_of_pool)
    yield read("cupti", WORDS["cupti"], as_count(told.get("cupti_bytes")), "not reported by CUPTI")
    yield _libraries_line(timeline, told, libraries, own)
    yield _modules_line(timeline, device, told)
    yield _context_line(timeline, device, told)


def _absence(timeline: Timeline) -> str:
    if Fact.CUPTI not in timeline.facts:
        return CUPTI_OFF
    return str(timeline.fact(Fact.CUPTI, "absent") or "CUPTI recorded nothing on this device")


def _pool_line(size: int | None, own_bytes: int) -> LedgerLine:
    if size is None:
        return absent("stream_ordered", WORDS["stream_ordered"], "not reported by CUPTI")
    left = max(size - own_bytes, 0)
    partial = LAST_POOL_CALL if left else ""
    return read("stream_ordered", WORDS["stream_ordered"], left, "", partial=partial)


def _libraries_line(
    timeline: Timeline, told: Mapping[str, Any], libraries: dict[str, int], own_bytes: int
) -> LedgerLine:
    """Allocations by libraries: a line for each, the largest first."""
    held = {name: size - own_bytes * (name == BINDINGS) for name, size in libraries.items()}
    order = sorted((name for name in held if held[name] > 0), key=lambda name: -held[name])
    size = sum(held[name] for name in order) if libraries else as_count(told.get("libraries_bytes"))
    reasons = tuple(_gaps(timeline))
    line = read(
        "libraries", WORDS["libraries"], size, "not reported by CUPTI", partial="; ".join(reasons)
    )
    parts = [LedgerLine(f"library.{name}", name, held[name]) for name in order[:MAX_LIBRARIES]]
    left = order[MAX_LIBRARIES:]
    if left:
        words = f"{len(left)} more libraries"
        parts.append(LedgerLine("library", words, sum(held[name] for name in left)))
    return divide(line, parts, LedgerLine("library.rest", "", None)) if parts else line


def _gaps(timeline: Timeline) -> Iterator[str]:
    """Why the libraries' allocations may be incomplete."""
    seconds = timeline.fact(Fact.CUPTI, "given_up_s")
    if isinstance(seconds, int | float) and seconds > 0:
        yield f"torch.profiler held CUPTI for {seconds:.1f} s of the time"
    if timeline.count_fact(Fact.CUPTI_COST, "refused_buffers"):
        yield "calls came faster than they could be read, and some are lost"
    if stopped := timeline.fact(probe_fact("cupti"), "stopped"):
        yield f"reading CUPTI failed before the end: {stopped}"
    if timeline.fact(Fact.CUPTI, "names_libraries") is False:
        yield "this CUPTI does not name libraries; 12.8 and later do"


def _modules_line(timeline: Timeline, device: int, told: Mapping[str, Any]) -> LedgerLine:
    """Growth of the process while code was loaded.

    If the context was measured, this includes code loaded before the first reading.
    """
    size, base = as_count(told.get("modules_bytes")), as_count(told.get("base_bytes"))
    context = timeline.count_fact(DeviceFact.CONTEXT.of(device), "bytes")
    if size is None:
        return absent("modules", WORDS["modules"], NO_READING)
    if base is not None and context is not None:
        size += max(base - context - (as_count(told.get("cupti_bytes")) or 0), 0)
    why = LOADED
    if timeline.fact(Fact.CUPTI, "marks_modules") is False:
        why += "; torch.profiler holds CUPTI's callbacks, so only code with arrays is noticed"
    return LedgerLine("modules", WORDS["modules"], size, Coverage.PARTIAL, why)


def _context_line(timeline: Timeline, device: int, told: Mapping[str, Any]) -> LedgerLine:
    """The CUDA context as measured before any allocation, else the least seen outside torch."""
    key, words = f"context.{device}", "CUDA context"
    size = timeline.count_fact(key, "bytes")
    if size is not None:
        return LedgerLine("context", words, size)
    base = as_count(told.get("base_bytes"))
    if base is not None:
        rest = max(base - (as_count(told.get("cupti_bytes")) or 0), 0)
        why = "memory before any recorded call; it includes code loaded by then"
        return LedgerLine("context", words, rest, Coverage.PARTIAL, why)
    counters = timeline.counters.get(device)
    least = None if counters is None else _settled(counters.outside)
    if least is None or least <= 0:
        reason = timeline.fact(key, "reason") or "it was not read before torch allocated"
        return absent("context", words, str(reason))
    why = (
        "the least memory outside torch and recorded calls after the first second; it "
        "includes memory that libraries held by then"
    )
    loaded = sum(as_count(told.get(f"{part}_bytes")) or 0 for part in ("libraries", "modules"))
    if least <= loaded:
        return absent("context", words, "it was not read before libraries allocated")
    return LedgerLine("context", words, int(least) - loaded, Coverage.PARTIAL, why)


def _settled(outside: Series | None) -> float | None:
    """The lowest value after the first second, when the context is complete; else the last."""
    if outside is None:
        return None
    is_settled = outside.t_ns >= outside.t_ns[0] + SETTLE_NS
    return float(outside.minimum[is_settled].min()) if is_settled.any() else outside.latest


def _sizes(told: object) -> dict[str, int]:
    """Name → bytes, from a fact."""
    if not isinstance(told, Mapping):
        return {}
    sizes = {str(name): as_count(size) for name, size in told.items()}
    return {name: size for name, size in sizes.items() if size is not None}
