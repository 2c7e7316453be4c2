"""Host memory in a recording: errors at a process's limit, kills at a container's limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memscope.analysis.diagnosis.explanation import Advice, AdviceKind, Explanation
from memscope.analysis.diagnosis.torch_advice import CONTAINER_LIMIT
from memscope.analysis.timeline.facts import as_count
from memscope.facts import Fact
from memscope.reader.state import StateName
from memscope.units import format_bytes, torch_size

if TYPE_CHECKING:
    from memscope.analysis.timeline.timeline import Timeline
    from memscope.reader.state import State

FULL_SHARE = 0.95
OWN_SHARE = 0.5  # of the limit: the kernel can free the rest by dropping cached files
_UNREAD_LIMIT = "whether ulimit -v (RLIMIT_AS) was set: the recording does not say"


def within_host_limits(found: Explanation, timeline: Timeline) -> Explanation:
    """Add the recorded limits to ``found``, which was explained from the error's text alone."""
    limit = timeline.count_fact(Fact.HOST_LIMITS, "address_space_bytes")
    is_read = isinstance(timeline.facts.get(Fact.HOST_LIMITS), dict)
    help_ = (*_help(limit, timeline), *_others(found, is_limit_known=is_read))
    if limit is None:
        unread = () if is_read else (_UNREAD_LIMIT,)
        return replace(found, help=help_, unknown=(*found.unknown, *unread))
    return replace(
        found,
        why=f"{found.why} {_why(limit, timeline)}",
        sizes_bytes={**found.sizes_bytes, "limit": limit},
        help=help_,
        unknown=("how much of its address space was in use",),
    )


def _why(limit: int, timeline: Timeline) -> str:
    resident = timeline.latest("host.rss_bytes")
    held = None if resident is None else as_count(int(resident.value))
    read = f"; {torch_size(held)} of it was resident at the last reading" if held else ""
    return (
        f"The process's address space was limited to {torch_size(limit)} (RLIMIT_AS, ulimit -v), "
        f"and everything mapped counts{read}. This is the likely cause."
    )


def _help(limit: int | None, timeline: Timeline) -> Iterator[Advice]:
    if limit is not None:
        yield Advice("ulimit -v unlimited, or higher", f"it was {torch_size(limit)}")
    group = timeline.facts.get(Fact.CGROUP)
    container = timeline.count_fact(Fact.CGROUP, "limit_bytes")
    if container is not None:
        reason = f"it was {torch_size(container)}; {CONTAINER_LIMIT.reason}"
        yield replace(CONTAINER_LIMIT, reason=reason)
    elif not isinstance(group, dict) and limit is None:
        yield CONTAINER_LIMIT  # it is unknown whether there is one


def _others(found: Explanation, *, is_limit_known: bool) -> Iterator[Advice]:
    """The advice of the text alone, except where the recording knows better."""
    for advice in found.help:
        is_known = advice.kind is AdviceKind.ADDRESS_SPACE and is_limit_known
        if advice.kind is not AdviceKind.CONTAINER_LIMIT and not is_known:
            yield advice


@dataclass(frozen=True, slots=True)
class HostFull:
    """The last readings of host memory near its limit. ``own_bytes``: the program's own."""

    used_bytes: int
    limit_bytes: int
    own_bytes: int | None
    kills: int

    @property
    def is_proven(self) -> bool:
        """Whether the program itself used the memory, or the kernel reports a kill."""
        own = self.own_bytes
        return bool(self.kills) or (own is not None and own >= OWN_SHARE * self.limit_bytes)

    @property
    def sentence(self) -> str:
        """The numbers as a sentence."""
        share = f"{self.used_bytes / self.limit_bytes:.0%}".replace("%", " %")
        own = f"; the program itself held {format_bytes(self.own_bytes)}" if self.own_bytes else ""
        kills = f"; the kernel had killed {self.kills:,} of its group before" if self.kills else ""
        return (
            f"Killed; host memory was at {share} of its limit "
            f"({format_bytes(self.used_bytes)} of {format_bytes(self.limit_bytes)}){own}{kills}."
        )


def host_full(timeline: Timeline, state: State) -> HostFull | None:
    """The last readings of a program that was cut off at its limit, else None."""
    limit = timeline.count_fact(Fact.CGROUP, "limit_bytes")
    used = timeline.latest("cgroup.used_bytes")
    if (
        state.name is not StateName.CUT
        or not limit
        or used is None
        or used.value < FULL_SHARE * limit
    ):
        return None
    own = timeline.latest("host.rss_bytes")
    return HostFull(
        used_bytes=int(used.value),
        limit_bytes=limit,
        own_bytes=None if own is None else int(own.value),
        kills=timeline.count_fact(Fact.CGROUP_EVENTS, "oom_kill") or 0,
    )
