"""Alerts at the top of the page: out of memory, partial, still being recorded."""

from __future__ import annotations

from memscope.analysis.summary.summary import Summary
from memscope.analysis.timeline.timeline import OutOfMemory, Timeline
from memscope.reader.state import StateName
from memscope.units import format_bytes
from memscope_dashboards.html.markup import escape


def render_alerts(summary: Summary, timeline: Timeline) -> str:
    """One box for each alert, the worst first."""
    boxes = [_out_of_memory(oom) for oom in timeline.ooms if oom.scope == "engine"][:1]
    if summary.state.is_partial:
        boxes.append(_partial(summary))
    elif summary.state.name is StateName.RUNNING:
        text = (
            "The program was still running when this page was made. Its metrics may still change."
        )
        boxes.append(_box("Still being recorded", text, "warn"))
    if summary.batches < summary.state.batches:
        boxes.append(_earlier(summary))
    return "".join(boxes)


def _partial(summary: Summary) -> str:
    text = f"The metrics below may miss some events ({summary.state})."
    return _box("This recording is partial", text, "warn")


def _earlier(summary: Summary) -> str:
    text = (
        f"This page shows the first {summary.batches:,} of {summary.state.batches:,} batches "
        f"({summary.events:,} events)."
    )
    return _box("Not the whole recording", text, "warn")


def _out_of_memory(oom: OutOfMemory) -> str:
    where = f" in step {oom.step}" if oom.step >= 0 else ""
    sizes = {"requested": oom.requested_bytes} if oom.requested_bytes >= 0 else {}
    tiles = "".join(
        f"<div><strong>{format_bytes(size)}</strong><span>{name}</span></div>"
        for name, size in (sizes | oom.counters).items()
    )
    return (
        f'<div class="alert" role="alert"><h2>Out of memory{where}</h2>'
        f'<div class="glance">{tiles}</div></div>'
    )


def _box(heading: str, text: str, kind: str) -> str:
    return (
        f'<div class="alert {kind}" role="alert"><h2>{escape(heading)}</h2>'
        f"<p>{escape(text)}</p></div>"
    )
