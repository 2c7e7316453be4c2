"""Workers that Ray's memory monitor killed because their node ran low on memory.

Worded by src/ray/raylet/node_manager.cc; its "GB" counts by 1024. Texts come without white space.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from memscope.interop.oom_log.formats.message import Format, Message
from memscope.interop.oom_log.sizes import Size, parse_size


class RayKind(StrEnum):
    """The one kind."""

    KILL = "ray"


@dataclass(frozen=True, slots=True)
class RayMessage(Message):
    """One kill. ``detail``: the task and its pid, "" if not given.

    ``total`` and ``free``: of the node. ``allocated``: what the task held. ``threshold_ratio``:
    how much of the node Ray allows to be used. ``address``: of the node.
    """

    kind: RayKind
    address: str = ""
    threshold_ratio: float | None = None

    @property
    def weight(self) -> int:
        """How much the message explains: its first lines tell nothing of the node."""
        return int(self.total is not None)

    @property
    def accounts(self) -> dict[str, Size]:
        """Nothing: its total is the node's, not a card's."""
        return {}


_NODE = re.compile(r"Memoryonthenode.{0,400}?was([\d.]{1,12}GB)/([\d.]{1,12}GB)")
_THRESHOLD = re.compile(r"usagethresholdof([01](?:\.\d{1,6})?)")
_ADDRESS = re.compile(r"Memoryonthenode\(IP:([\da-f.:]{1,40}),")
_TASK = re.compile(r"name=([^,]{1,60}),pid=(\d{1,10}),memoryused=([\d.]{1,12}GB)")


def _parse(kind: RayKind, text: str) -> RayMessage:
    node, threshold = _NODE.search(text), _THRESHOLD.search(text)
    address, task = _ADDRESS.search(text), _TASK.search(text)
    used, total = (parse_size(node[1]), parse_size(node[2])) if node else (None, None)
    return RayMessage(
        kind,
        detail=f"task {task[1]} (pid {task[2]})" if task else "",
        allocated=parse_size(task[3]) if task else None,
        total=total,
        free=_free(total, used),
        address=address[1] if address else "",
        threshold_ratio=float(threshold[1]) if threshold else None,
    )


def _free(total: Size | None, used: Size | None) -> Size | None:
    if total is None or used is None or used.bytes > total.bytes:
        return None
    return total - used


FORMAT = Format(
    name="ray",
    message=RayMessage,
    needles={
        RayKind.KILL: (
            "killedduetothenoderunninglowonmemory",
            "killedduetomemorypressure(OOM)",
            "Memoryonthenode",
        )
    },
    words=("low on memory", "memory pressure", "Memory on the node"),
    parse=_parse,
)
