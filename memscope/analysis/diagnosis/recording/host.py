"""A recorded error for lack of host memory, by the limits that the process had."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from memscope.analysis.diagnosis.advice import CONTAINER, OWN_LIMIT
from memscope.analysis.diagnosis.explanation import Advice, Explanation
from memscope.analysis.diagnosis.situation import torch_size
from memscope.analysis.timeline.facts import as_count
from memscope.facts import Fact

if TYPE_CHECKING:
    from memscope.analysis.timeline.timeline import Timeline

_UNREAD_LIMIT = "whether ulimit -v (RLIMIT_AS) was set: the recording does not say"


def within_host_limits(found: Explanation, timeline: Timeline) -> Explanation:
    """``found``, which the error's text alone gave, with the limits that are recorded."""
    limit = timeline.count_fact(Fact.HOST_LIMITS, "address_space_bytes")
    is_read = isinstance(timeline.facts.get(Fact.HOST_LIMITS), dict)
    help_ = (*_help(limit, timeline), *_others(found, is_limit_known=is_read))
    if limit is None:
        unread = () if is_read else (_UNREAD_LIMIT,)
        return replace(found, help=help_, unknown=(*found.unknown, *unread))
    return replace(
        found,
        why=f"{found.why} {_why(limit, timeline)}",
        amounts={**found.amounts, "limit": limit},
        help=help_,
        unknown=("how much of its address space was in use",),
    )


def _why(limit: int, timeline: Timeline) -> str:
    resident = timeline.latest("host.rss_bytes")
    held = None if resident is None else as_count(int(resident.value))
    read = f", and {torch_size(held)} of it was resident when last read" if held else ""
    return (
        f"The process's address space was limited to {torch_size(limit)} (RLIMIT_AS, ulimit -v): "
        f"all that is mapped counts{read}. That is the likely limit."
    )


def _help(limit: int | None, timeline: Timeline) -> Iterator[Advice]:
    if limit is not None:
        yield Advice("ulimit -v unlimited, or higher", f"it was {torch_size(limit)}")
    group = timeline.facts.get(Fact.CGROUP)
    container = timeline.count_fact(Fact.CGROUP, "limit_bytes")
    if container is not None:
        yield Advice(CONTAINER.setting, f"it was {torch_size(container)}; {CONTAINER.reason}")
    elif not isinstance(group, dict) and limit is None:
        yield CONTAINER  # nobody read whether there is one


def _others(found: Explanation, *, is_limit_known: bool) -> Iterator[Advice]:
    """What the text alone advises, but for what is known better."""
    for advice in found.help:
        if advice != CONTAINER and not (advice == OWN_LIMIT and is_limit_known):
            yield advice
