"""Containers that Kubernetes reports as OOMKilled, and pods that a kubelet evicted.

Evictions are worded in pkg/kubelet/eviction/helpers.go. Texts come without white space.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from memscope.interop.oom_log.formats.linux import LinuxKind, LinuxMessage
from memscope.interop.oom_log.formats.message import Format, Message
from memscope.interop.oom_log.sizes import QUANTITY, Size, parse_quantity


class KubernetesKind(StrEnum):
    """What happened to the pod."""

    OOM_KILLED = "oom_killed"
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True)
class EvictedMessage(Message):
    """An eviction. ``detail``: the container that held the most, "" if not given.

    ``allocated``: what that container held. ``promised``: what it had requested. ``free``: of the
    node. ``limit``: what the kubelet keeps free.
    """

    kind: KubernetesKind
    promised: Size | None = None


_LIMIT = re.compile(rf"[Ll]imits\"?:(?:(?!equests).){{0,60}}?memory\"?:\"?({QUANTITY})")
_HELD = re.compile(rf"Container([\w.-]{{1,63}}?)wasusing({QUANTITY}),[a-z]{{0,24}}({QUANTITY})")
_FREE = re.compile(rf"Thresholdquantity:({QUANTITY}),available:({QUANTITY})")


def _find_start(kind: KubernetesKind, text: str, place: int) -> int | None:
    is_of_slurm = text.endswith("havebeen", 0, place)  # "... tasks have been OOM Killed."
    return None if kind is KubernetesKind.OOM_KILLED and is_of_slurm else place


def _parse(kind: KubernetesKind, text: str) -> Message:
    if kind is KubernetesKind.EVICTED:
        return _parse_evicted(text)
    own = text.partition("ContainerID:")[0]  # the next container begins there
    return LinuxMessage(LinuxKind.KILL, limit=_limit(own), is_container=True)


def _limit(text: str) -> Size | None:
    match = _LIMIT.search(text)
    size = parse_quantity(match[1]) if match else None
    return size if size and size.bytes else None


def _parse_evicted(text: str) -> EvictedMessage:
    held = [(each, size) for each in _HELD.finditer(text) if (size := parse_quantity(each[2]))]
    most, size = max(held, key=lambda pair: pair[1].bytes, default=(None, None))
    free = _FREE.search(text[:200])
    return EvictedMessage(
        KubernetesKind.EVICTED,
        detail=most[1] if most else "",
        allocated=size,
        promised=parse_quantity(most[3]) if most else None,
        limit=parse_quantity(free[1]) if free else None,
        free=parse_quantity(free[2]) if free else None,
    )


FORMAT = Format(
    name="kubernetes",
    message=EvictedMessage,
    needles={
        KubernetesKind.OOM_KILLED: ("OOMKilled",),
        KubernetesKind.EVICTED: ("Thenodewaslowonresource:memory",),
    },
    words=("OOMKilled", "low on resource"),
    find_start=_find_start,
    parse=_parse,
)
