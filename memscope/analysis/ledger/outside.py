"""What a process holds outside torch, in the ledger's lines, as CUPTI and NVML told it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from memscope.analysis.ledger.lines import PARTIAL, Line, absent, divide, read
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
NOT_ASKED = "CUPTI was not asked for"
NO_READING = "NVML gave no bytes of this process while CUPTI was on"
LOADED = "what the process grew by, beyond all calls, while code was loaded"
OF_POOL = "as it stood at the pool's last call"


def outside_lines(timeline: Timeline, device: int, raw_bytes: int) -> Iterator[Line]:
    """Pool, CUPTI, libraries, modules, context. ``raw_bytes``: the program's own driver calls.

    CUPTI sees these as well, as calls by cuda.bindings; they have a line of their own already.
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
    yield read("cupti", WORDS["cupti"], as_count(told.get("cupti_bytes")), "CUPTI did not tell")
    yield _libraries_line(timeline, told, libraries, own)
    yield _modules_line(timeline, device, told)
    yield _context_line(timeline, device, told)


def _absence(timeline: Timeline) -> str:
    if Fact.CUPTI not in timeline.facts:
        return NOT_ASKED
    return str(timeline.fact(Fact.CUPTI, "absent") or "CUPTI recorded nothing of this device")


def _pool_line(size: int | None, own_bytes: int) -> Line:
    if size is None:
        return absent("stream_ordered", WORDS["stream_ordered"], "CUPTI did not tell")
    left = max(size - own_bytes, 0)
    partial = OF_POOL if left else ""
    return read("stream_ordered", WORDS["stream_ordered"], left, "", partial=partial)


def _libraries_line(
    timeline: Timeline, told: Mapping[str, Any], libraries: dict[str, int], own_bytes: int
) -> Line:
    """With a line for each library, the largest first."""
    held = {name: size - own_bytes * (name == BINDINGS) for name, size in libraries.items()}
    order = sorted((name for name in held if held[name] > 0), key=lambda name: -held[name])
    size = sum(held[name] for name in order) if libraries else as_count(told.get("libraries_bytes"))
    reasons = tuple(_gaps(timeline))
    line = read(
        "libraries", WORDS["libraries"], size, "CUPTI did not tell", partial="; ".join(reasons)
    )
    parts = [Line(f"library.{name}", name, held[name]) for name in order[:MAX_LIBRARIES]]
    left = order[MAX_LIBRARIES:]
    if left:
        words = f"{len(left)} more libraries"
        parts.append(Line("library", words, sum(held[name] for name in left)))
    return divide(line, parts, Line("library.rest", "", None)) if parts else line


def _gaps(timeline: Timeline) -> Iterator[str]:
    """Why libraries' allocations may be incomplete."""
    seconds = timeline.fact(Fact.CUPTI, "given_up_s")
    if isinstance(seconds, int | float) and seconds > 0:
        yield f"torch.profiler held CUPTI for {seconds:.1f} s of the time"
    if timeline.count_fact(Fact.CUPTI_COST, "refused_buffers"):
        yield "calls came faster than they could be read, and some are lost"
    if stopped := timeline.fact(probe_fact("cupti"), "stopped"):
        yield f"reading CUPTI failed before the end: {stopped}"
    if timeline.fact(Fact.CUPTI, "names_libraries") is False:
        yield "this CUPTI names no libraries: 12.8 is the first that does"


def _modules_line(timeline: Timeline, device: int, told: Mapping[str, Any]) -> Line:
    """Growth while code was loaded; with a measured context also what came before the first
    reading."""
    size, base = as_count(told.get("modules_bytes")), as_count(told.get("base_bytes"))
    context = timeline.count_fact(DeviceFact.CONTEXT.of(device), "bytes")
    if size is None:
        return absent("modules", WORDS["modules"], NO_READING)
    if base is not None and context is not None:
        size += max(base - context - (as_count(told.get("cupti_bytes")) or 0), 0)
    why = LOADED
    if timeline.fact(Fact.CUPTI, "marks_modules") is False:
        why += "; since torch.profiler has CUPTI's callbacks, code with arrays alone is noticed"
    return Line("modules", WORDS["modules"], size, PARTIAL, why)


def _context_line(timeline: Timeline, device: int, told: Mapping[str, Any]) -> Line:
    """As measured before anything was allocated; else the least ever seen outside of torch."""
    key, words = f"context.{device}", "CUDA context"
    size = timeline.count_fact(key, "bytes")
    if size is not None:
        return Line("context", words, size)
    base = as_count(told.get("base_bytes"))
    if base is not None:
        rest = max(base - (as_count(told.get("cupti_bytes")) or 0), 0)
        why = "the first reading of what no call accounts for: code loaded by then is in it"
        return Line("context", words, rest, PARTIAL, why)
    counters = timeline.counters.get(device)
    least = None if counters is None else _settled(counters.outside)
    if least is None or least <= 0:
        reason = timeline.fact(key, "reason") or "no reading of it before torch allocated"
        return absent("context", words, str(reason))
    why = (
        "the least that this process held outside torch and recorded calls, after a first second: "
        "what libraries had taken by then is in it"
    )
    loaded = sum(as_count(told.get(f"{part}_bytes")) or 0 for part in ("libraries", "modules"))
    if least <= loaded:
        return absent("context", words, "no reading of it before libraries allocated")
    return Line("context", words, int(least) - loaded, PARTIAL, why)


def _settled(outside: Series | None) -> float | None:
    """The least once the context had grown whole; of a short recording the last reading."""
    if outside is None:
        return None
    is_settled = outside.t_ns >= outside.t_ns[0] + SETTLE_NS
    return float(outside.minimum[is_settled].min()) if is_settled.any() else outside.latest


def _sizes(told: object) -> dict[str, int]:
    """Name → bytes, of what a fact says."""
    if not isinstance(told, Mapping):
        return {}
    sizes = {str(name): as_count(size) for name, size in told.items()}
    return {name: size for name, size in sizes.items() if size is not None}
