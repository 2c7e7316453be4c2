"""The top of the screen: file, state, batch number and age; program and device; alarms."""

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
from memscope_dashboards.tui.palette import Role
from memscope_dashboards.tui.styled_line import Span, StyledLine, join, spread
from memscope_dashboards.tui.widgets.lines_widget import LinesWidget

DOT: Span = (" · ", Role.DIM)
STALE_S = 5.0
DAY_S = 86_400
WIDE_FROM = 110


class Masthead(LinesWidget):
    """Two lines, and one more for each problem that the viewer must not miss."""

    is_paused = False

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[StyledLine]:
        """See the class."""
        name: StyledLine = (
            ("memscope live ", Role.TITLE),
            (clean(snapshot.path.name, 120), Role.STRONG),
        )
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

    def _condition(self, snapshot: Snapshot, *, is_short: bool) -> StyledLine:
        """State, batch number, and age of the newest event."""
        if snapshot.summary is None:
            return (("waiting", Role.NOTICE),)
        batch: StyledLine = (("batch ", Role.DIM), (f"{snapshot.summary.batches:,}", Role.STRONG))
        paused: StyledLine = ((" paused ", Role.NOTICE),) if self.is_paused else ()
        return join(
            (paused, (state_span(snapshot),), batch, age_line(snapshot, is_short=is_short)), DOT
        )


def state_span(snapshot: Snapshot) -> Span:
    """The recording's state in one word, with its look."""
    assert snapshot.summary is not None
    state = snapshot.summary.state
    if snapshot.is_catching_up:
        return ("◌ reading", Role.NOTICE)
    if state.lacks_events:
        return (f" {state.name.upper()} ", Role.ALARM)
    return (
        ("● running", Role.RUNNING)
        if state.name is StateName.RUNNING
        else ("■ complete", Role.COMPLETE)
    )


def age_line(snapshot: Snapshot, *, is_short: bool) -> StyledLine:
    """Age of the newest event, highlighted if a running program records nothing."""
    if snapshot.age_s is None:
        return (("no event yet", Role.DIM),)
    assert snapshot.summary is not None
    is_running = snapshot.summary.state.name is StateName.RUNNING
    role = Role.WARN if is_running and snapshot.age_s > STALE_S else Role.TEXT
    label = "newest " if is_short else "newest event "
    return ((label, Role.DIM), (f"{format_age(snapshot.age_s)} ago", role))


def format_age(age_s: float) -> str:
    """An age in tenths of a second at most, so that it does not flicker."""
    if age_s >= 2 * DAY_S:
        return f"{age_s / DAY_S:,.0f} days"
    return f"{age_s:.1f} s" if age_s < 60 else format_seconds(age_s)


def settings_line(facts: object, *, is_short: bool) -> StyledLine:
    """Model, policy, keep, allocator, unit and prefetch, if recorded."""
    policy, keep = (fact_text(facts, Fact.POLICY, field) for field in ("policy", "keep"))
    prefetch = fact(facts, Fact.POLICY, "prefetch")
    parts = (
        (fact_text(facts, Fact.MODEL, "name", 24 if is_short else 48), Role.STRONG),
        (f"{policy}, keep {keep}" if policy and keep else policy, Role.TEXT),
        (fact_text(facts, Fact.POLICY, "allocator"), Role.TEXT),
        (fact_text(facts, Fact.POLICY, "unit"), Role.TEXT),
        ("prefetch" if prefetch is True else "no prefetch" if prefetch is False else "", Role.TEXT),
    )
    return join((((text, role),) for text, role in parts if text), DOT)


def fact(facts: object, key: str, field: str) -> object:
    """One field of the fact ``key``, or None. A file from elsewhere may hold anything."""
    value = facts.get(key) if isinstance(facts, dict) else None
    return value.get(field) if isinstance(value, dict) else None


def fact_text(facts: object, key: str, field: str, limit: int = 40) -> str:
    """One field of a fact as clean text. Empty if it is absent or neither text nor a number."""
    value = fact(facts, key, field)
    return clean(value, limit) if isinstance(value, str | int | float) else ""


def command_line(words: Sequence[str]) -> StyledLine:
    """The command, for a recording without settings."""
    return (
        (clean(" ".join(words), 120), Role.TEXT) if words else ("no settings recorded", Role.DIM),
    )


def device_line(summary: Summary, *, is_short: bool) -> StyledLine:
    """The devices by kind. A host device is never called a GPU."""
    if not summary.used_devices:
        return (("no GPU was recorded", Role.DIM),)
    first, name = summary.used_devices[0], clean(summary.device_name, 40)
    kind, is_one = clean(first.kind, 16), len(summary.used_devices) == 1
    if is_short:
        return ((f"{kind} device" if first.is_host else name, Role.TEXT),)
    is_plain = not is_one or name.lower().startswith(kind)
    held: StyledLine = () if is_one else ((", peak ", Role.DIM), (summary.held_words, Role.TEXT))
    label = name if is_plain else f"{kind} device {name}"
    return (
        (label, Role.TEXT),
        *held,
        (", limit ", Role.DIM),
        (limit_words(summary.used_devices), Role.TEXT),
    )


def limit_words(devices: Sequence[Device]) -> str:
    """Usable bytes of the devices, one size if they are equal."""
    sizes = [device.usable_bytes for device in devices]
    words = dict.fromkeys(format_bytes(size) if size else "not known" for size in sizes)
    return " and ".join(words) + (" each" if len(sizes) > 1 and len(words) == 1 else "")


def alarms(snapshot: Snapshot) -> list[Span]:
    """Sentences that the viewer must not miss, with their roles."""
    found = []
    summary = snapshot.summary
    if snapshot.problem and summary is not None:
        found.append((clean(snapshot.problem, 240), Role.NOTICE))
    if summary is not None and summary.state.is_partial and not snapshot.is_catching_up:
        found.append((f"PARTIAL: metrics may miss events. {summary.state}", Role.ALARM))
    return found + [(clean(sentence.text, 240), Role.ALARM) for sentence in pressing(snapshot)]


def pressing(snapshot: Snapshot) -> tuple[Sentence, ...]:
    """Sentences of the severity alarm."""
    if snapshot.summary is None:
        return ()
    sentences = snapshot.summary.sentences
    return tuple(each for each in sentences if each.severity is Severity.ALARM)
