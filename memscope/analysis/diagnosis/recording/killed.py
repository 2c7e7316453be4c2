"""Whether a program that was cut off died at its control group's memory limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memscope.facts import Fact
from memscope.reader.state import StateName
from memscope.units import format_bytes

if TYPE_CHECKING:
    from memscope.analysis.timeline.timeline import Timeline
    from memscope.reader.state import State

FULL_SHARE = 0.95
OWN_SHARE = 0.5  # of the limit: what the kernel cannot give back by dropping cached files


@dataclass(frozen=True, slots=True)
class HostFull:
    """Host memory as it was last read, near its limit. ``own_bytes``: the program's own."""

    used_bytes: int
    limit_bytes: int
    own_bytes: int | None
    kills: int

    @property
    def is_proven(self) -> bool:
        """Whether it was the program's own memory, or the kernel says that it killed for it."""
        own = self.own_bytes
        return bool(self.kills) or (own is not None and own >= OWN_SHARE * self.limit_bytes)

    @property
    def sentence(self) -> str:
        """The numbers."""
        share = f"{self.used_bytes / self.limit_bytes:.0%}".replace("%", " %")
        own = f"; the program itself held {format_bytes(self.own_bytes)}" if self.own_bytes else ""
        kills = f"; the kernel had killed {self.kills:,} of its group before" if self.kills else ""
        return (
            f"Killed; host memory was at {share} of its limit "
            f"({format_bytes(self.used_bytes)} of {format_bytes(self.limit_bytes)}){own}{kills}."
        )


def host_full(timeline: Timeline, state: State) -> HostFull | None:
    """The last readings of a program that was cut off at its limit; None where it was not."""
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
