"""The top of the screen: file, state, batch number, age; what runs where; and what is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from memscope.analysis.summary.sentence import Sentence, Severity
from memscope.analysis.summary.summary import Summary
from memscope.analysis.timeline.facts import Device
from memscope.facts import Fact
from memscope.reader.state import StateName
from memscope.text import clean
from memscope.units import format_bytes, format_seconds
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.line import Line, Span, join, spread
from memscope_dashboards.tui.text import fact, fact_text
from memscope_dashboards.tui.widgets.lines import LinesWidget

DOT: Span = (" · ", "dim")
STALE_S = 5.0
DAY_S = 86_400
WIDE_FROM = 110


class Masthead(LinesWidget):
    """Two lines always, and a loud one for each thing that makes the metrics less than whole."""

    is_paused = False

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[Line]:
        """See the class."""
        name: Line = (("memscope live ", "title"), (clean(snapshot.path.name, 120), "strong"))
        lines = [spread(name, self._condition(snapshot, is_short=width < WIDE_FROM), width)]
        if snapshot.summary is not None:
            facts = snapshot.summary.facts
            lines.append(
                spread(
                    settings_line(facts, is_short=width < WIDE_FROM)
                    or command_line(snapshot.summary.header.command),
                    device_line(snapshot.summary, is_short=width < WIDE_FROM),
                    width,
                )
            )
        lines += [
            spread(((f" {text} ", role),), (), width, (" ", role))
            for text, role in alarms(snapshot)
        ]
        return lines

    def _condition(self, snapshot: Snapshot, *, is_short: bool) -> Line:
        """State, batch number, and age of the newest event."""
        if snapshot.summary is None:
            return (("waiting", "notice"),)
        batch: Line = (("batch ", "dim"), (f"{snapshot.summary.batches:,}", "strong"))
        paused: Line = ((" paused ", "notice"),) if self.is_paused else ()
        return join(
            (paused, (state_span(snapshot),), batch, age_line(snapshot, is_short=is_short)), DOT
        )


def state_span(snapshot: Snapshot) -> Span:
    """The recording's state in one word, with its look."""
    assert snapshot.summary is not None
    state = snapshot.summary.state
    if snapshot.is_catching_up:
        return ("◌ reading", "notice")
    if state.lacks_events:
        return (f" {state.name.upper()} ", "alarm")
    return (
        ("● running", "running") if state.name is StateName.RUNNING else ("■ complete", "complete")
    )


def age_line(snapshot: Snapshot, *, is_short: bool) -> Line:
    """How old the newest event is; loud where a running program has gone quiet."""
    if snapshot.age_s is None:
        return (("no event yet", "dim"),)
    assert snapshot.summary is not None
    is_running = snapshot.summary.state.name is StateName.RUNNING
    role = "warn" if is_running and snapshot.age_s > STALE_S else "text"
    label = "newest " if is_short else "newest event "
    return ((label, "dim"), (f"{format_age(snapshot.age_s)} ago", role))


def format_age(age_s: float) -> str:
    """An age in tenths of a second at most, so that it does not flicker."""
    if age_s >= 2 * DAY_S:
        return f"{age_s / DAY_S:,.0f} days"
    return f"{age_s:.1f} s" if age_s < 60 else format_seconds(age_s)


def settings_line(facts: object, *, is_short: bool) -> Line:
    """Model, policy, keep, allocator, unit and prefetch, as far as the recording has them."""
    policy, keep = (fact_text(facts, Fact.POLICY, field) for field in ("policy", "keep"))
    prefetch = fact(facts, Fact.POLICY, "prefetch")
    parts = (
        (fact_text(facts, Fact.MODEL, "name", 24 if is_short else 48), "strong"),
        (f"{policy}, keep {keep}" if policy and keep else policy, "text"),
        (fact_text(facts, Fact.POLICY, "allocator"), "text"),
        (fact_text(facts, Fact.POLICY, "unit"), "text"),
        ("prefetch" if prefetch is True else "no prefetch" if prefetch is False else "", "text"),
    )
    return join((((text, role),) for text, role in parts if text), DOT)


def command_line(words: Sequence[str]) -> Line:
    """What was run, where the recording has no settings."""
    return ((clean(" ".join(words), 120), "text") if words else ("no settings recorded", "dim"),)


def device_line(summary: Summary, *, is_short: bool) -> Line:
    """The devices by their kind: a host device is never called a GPU."""
    if not summary.used_devices:
        return (("no GPU is recorded", "dim"),)
    first, name = summary.used_devices[0], clean(summary.device_name, 40)
    kind, is_one = clean(first.kind, 16), len(summary.used_devices) == 1
    if is_short:
        return ((f"{kind} device" if first.is_host else name, "text"),)
    is_plain = not is_one or name.lower().startswith(kind)
    held: Line = () if is_one else ((", peak ", "dim"), (summary.held_words, "text"))
    label = name if is_plain else f"{kind} device {name}"
    return (
        (label, "text"),
        *held,
        (", limit ", "dim"),
        (limit_words(summary.used_devices), "text"),
    )


def limit_words(devices: Sequence[Device]) -> str:
    """What may be used of a device; of each where they differ."""
    sizes = [device.usable_bytes for device in devices]
    words = dict.fromkeys(format_bytes(size) if size else "not known" for size in sizes)
    return " and ".join(words) + (" each" if len(sizes) > 1 and len(words) == 1 else "")


def alarms(snapshot: Snapshot) -> list[tuple[str, str]]:
    """What the viewer must not miss: each a sentence and its role."""
    found = []
    summary = snapshot.summary
    if snapshot.problem and summary is not None:
        found.append((clean(snapshot.problem, 240), "notice"))
    if summary is not None and summary.state.is_partial and not snapshot.is_catching_up:
        found.append((f"PARTIAL, so metrics may miss events. {summary.state}", "alarm"))
    return found + [(clean(sentence.text, 240), "alarm") for sentence in pressing(snapshot)]


def pressing(snapshot: Snapshot) -> tuple[Sentence, ...]:
    """Sentences that stand at the top: alarms."""
    if snapshot.summary is None:
        return ()
    sentences = snapshot.summary.sentences
    return tuple(each for each in sentences if each.severity is Severity.ALARM)
