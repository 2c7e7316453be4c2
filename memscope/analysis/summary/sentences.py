"""Sentences that say what the metrics mean for this run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memscope.analysis.diagnosis.recording.explain import oom_sentence
from memscope.analysis.diagnosis.recording.host_memory import host_full
from memscope.analysis.metrics.memory import find_device
from memscope.analysis.metrics.metric import Missing
from memscope.analysis.metrics.residency import analyse_residency, wait_ms_per_step
from memscope.analysis.summary.allocator_sentences import write_allocator_sentences
from memscope.analysis.summary.sentence import Sentence, SentenceKind
from memscope.analysis.timeline.facts import read_model, read_plan, read_policy
from memscope.analysis.timeline.timeline import Timeline
from memscope.facts import Fact
from memscope.plan import advice
from memscope.reader.scanner import State
from memscope.units import format_bytes, format_seconds, format_value


def write_sentences(timeline: Timeline, state: State) -> tuple[Sentence, ...]:
    """Sentences about this recording, the most urgent first."""
    killed = host_full(timeline, state)
    pressing = (
        (SentenceKind.RECORDING_STOPPED, _stopped(timeline)),
        (SentenceKind.KILLED, killed.sentence if killed else None),
        (SentenceKind.OUT_OF_MEMORY, _out_of_memory(timeline)),
    )
    other = (
        (SentenceKind.RELEASED_AT_END, _released_at_end(timeline)),
        (SentenceKind.NO_STEP, _no_step(timeline)),
        (SentenceKind.USELESS_KEEP, _useless_keep(timeline)),
        (SentenceKind.MODEL_FITS, _fits(timeline)),
        (SentenceKind.DROPPED_EVENTS, _dropped(timeline)),
        (SentenceKind.REFUSED_EVENTS, _refused(timeline)),
        (SentenceKind.OLD_EVENTS, _older(timeline)),
        (SentenceKind.UNKNOWN_EVENTS, _unknown(timeline)),
        (SentenceKind.IGNORED_EVENTS, _ignored(timeline)),
    )
    return (*_said(pressing), *write_allocator_sentences(timeline), *_said(other))


def _said(found: Iterable[tuple[SentenceKind, str | None]]) -> Iterator[Sentence]:
    return (Sentence(kind, text) for kind, text in found if text)


def _stopped(timeline: Timeline) -> str | None:
    reason = timeline.fact(Fact.STOPPED, "reason")
    if reason is None:
        return None
    return f"The recording stopped before the program did: {reason}."


def _refused(timeline: Timeline) -> str | None:
    rows = timeline.count_fact(Fact.REFUSED, "rows")
    if not rows:
        return None
    reason = timeline.fact(Fact.REFUSED, "reason")
    return f"{rows:,} events of the program could not be recorded: {reason}."


def _out_of_memory(timeline: Timeline) -> str | None:
    engine = [oom for oom in timeline.ooms if oom.scope == "engine"]
    if not engine:
        return None
    if engine[-1].source:
        return oom_sentence(timeline)
    oom = engine[0]
    where = f" in step {oom.step}" if oom.step >= 0 else ""
    asked = f"{format_bytes(oom.requested_bytes)} requested" if oom.requested_bytes >= 0 else ""
    held = [
        f"{format_bytes(oom.counters[name])} {name}"
        for name in ("free", "allocated", "limit")
        if name in oom.counters
    ]
    sizes = ", ".join([asked, *held] if asked else held)
    plan = read_plan(timeline.facts)
    return " ".join(
        part for part in (f"Out of memory{where}: {sizes}.", plan and advice(plan)) if part
    )


def _released_at_end(timeline: Timeline) -> str | None:
    """A note that the ledger shows the end of the run, when a program holds little."""
    driver, device = timeline.driver, find_device(timeline)
    is_gpu = device is not None and not device.is_host
    is_known = driver.is_peak_known and driver.peak_bytes > 0
    if not (is_gpu and is_known) or 2 * driver.bytes >= driver.peak_bytes:
        return None
    return (
        f"Driver calls of this program held at most {format_bytes(driver.peak_bytes)}, and "
        f"{format_bytes(driver.bytes)} at the end. --at peak shows where the memory was."
    )


def _no_step(timeline: Timeline) -> str | None:
    ended, warmup = len(timeline.steps), timeline.warmup_steps
    if not ended:
        return "No step has ended in this recording, so metrics of steps are not measured."
    if ended <= warmup:
        return (
            f"Only {ended} of {warmup} warm-up steps have ended. "
            "--warm-up N sets another number of them."
        )
    return None


def _useless_keep(timeline: Timeline) -> str | None:
    """A warning if `past` saves no memory: its peak is min(2 keep, L) layers."""
    settings, layers = read_policy(timeline.facts), timeline.layers
    keep = settings.keep
    if settings.policy != "past" or keep is None or layers is None:
        return None
    if 2 * keep < layers or keep >= layers:
        return None
    smaller = (layers + 1) // 2 - 1
    instead = f"Use --keep {smaller} or" if smaller else "Use"
    return (
        f"With --policy past, keep {keep} of {layers} does not lower the peak: the end of one "
        f"sweep and the start of the next together hold all {layers} layers. "
        f"{instead} --policy pinned."
    )


def _fits(timeline: Timeline) -> str | None:
    """A warning if the whole model fits: a window then only costs time."""
    needed, device = _whole_bytes(timeline), find_device(timeline)
    usable = device.usable_bytes if device else None
    policy = read_policy(timeline.facts).policy
    if policy in (None, "off") or needed is None or usable is None or needed > usable:
        return None
    wait_ms = wait_ms_per_step(timeline)
    uploads = analyse_residency(timeline).uploads_per_step
    if wait_ms is None or isinstance(uploads, Missing):
        return None
    return (
        f"The whole model fits ({format_bytes(needed)} of {format_bytes(usable)}): "
        f"--policy off would save {format_value(wait_ms, 'ms')} per step, the time spent waiting "
        f"for {format_value(uploads, 'layers')}."
    )


def _whole_bytes(timeline: Timeline) -> int | None:
    """The bytes that the run needs with every layer on the device."""
    plan = read_plan(timeline.facts)
    if plan is not None:
        return plan.needs.layers * plan.needs.slab_bytes + plan.needs.always_bytes
    model = read_model(timeline.facts)
    if model.weights_bytes is None or model.fixed_bytes is None:
        return None
    return model.weights_bytes + model.fixed_bytes


def _dropped(timeline: Timeline) -> str | None:
    if not timeline.dropped_rows:
        return None
    fast = {
        kind: count - timeline.old_sums.get(kind, 0) for kind, count in timeline.dropped.items()
    }
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in fast.items() if count)
    return (
        f"{timeline.dropped_rows:,} events came faster than they could be written. Only their sums "
        f"are recorded ({kinds})."
    )


def _older(timeline: Timeline) -> str | None:
    """A note on what --keep-last removed."""
    summed = sum(timeline.old_sums.values())
    begun = timeline.count_fact(Fact.SEGMENT, "begins_ns")
    parts = [] if begun is None else [f"events before {format_seconds(begun / 1e9)} were deleted"]
    if summed:
        parts.append(f"{summed:,} old events were reduced to sums per step and a few readings")
    if not parts:
        return None
    return f"The recording was kept small: {'; '.join(parts)}. --keep-last SIZE keeps more."


def _unknown(timeline: Timeline) -> str | None:
    if not timeline.unknown_kinds:
        return None
    kinds = ", ".join(f"{count:,} {name}" for name, count in timeline.unknown_kinds.items())
    return f"This version does not know some kinds of events and ignores them: {kinds}."


def _ignored(timeline: Timeline) -> str | None:
    if not timeline.ignored_rows:
        return None
    return (
        f"{timeline.ignored_rows:,} events are ignored by all metrics: their layer is invalid, or "
        "there are more steps, readings or facts than memscope keeps."
    )
