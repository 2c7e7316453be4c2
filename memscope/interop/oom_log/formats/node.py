"""Programs that a node's manager ended, or saw end, for lack of host memory.

Slurm: src/slurmd/slurmstepd (jobs' control groups) and srun's words for a task's end. Kubernetes:
pkg/kubelet/eviction/helpers.go. Ray: src/ray/raylet/node_manager.cc; its "GB" counts by 1024.
Texts come without white space.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from memscope.interop.oom_log.formats.torch import OomMessage
from memscope.interop.oom_log.quantities import QUANTITY, parse_quantity
from memscope.interop.oom_log.sizes import Size, parse_size


@dataclass(frozen=True, slots=True)
class NodeMessage(OomMessage):
    """One message. ``kind``: "slurm", "evicted" or "ray". ``detail``: whom it ended, if told.

    ``total``, ``free``: of the node. ``allocated``: what was held by the one ended; ``promised``:
    what its pod had requested. ``limit``: what the node may use, or must keep free where it is a
    kubelet's. ``job``: Slurm's number. ``address``: of the node. ``share``: of Ray's threshold.
    """

    promised: Size | None = None
    job: str = ""
    address: str = ""
    share: float | None = None


NEEDLES = {
    "slurm": ("oom_killeventin", "oom_killeventsin", "oom-killevent(s)in", ":OutOfMemory"),
    "evicted": ("Thenodewaslowonresource:memory",),
    "ray": (
        "killedduetothenoderunninglowonmemory",
        "killedduetomemorypressure(OOM)",
        "Memoryonthenode",
    ),
}
WORDS = (
    *("oom_kill event", "oom-kill event", "Out Of Memory"),
    *("low on resource", "low on memory", "memory pressure", "Memory on the node"),
)

_TASK = re.compile(r"error:([\w.-]{1,64}):tasks?([\d,-]{1,40}):OutOfMemory(?!\w)")
_TASK_CHARACTERS = 120  # that may stand before the needle in its line
_JOB = re.compile(r"in(?:StepId=|step)(\d{1,12})")
_HELD = re.compile(rf"Container([\w.-]{{1,63}}?)wasusing({QUANTITY}),[a-z]{{0,24}}({QUANTITY})")
_FREE = re.compile(rf"Thresholdquantity:({QUANTITY}),available:({QUANTITY})")
_NODE = re.compile(r"Memoryonthenode.{0,400}?was([\d.]{1,12}GB)/([\d.]{1,12}GB)")
_SHARE = re.compile(r"usagethresholdof([01](?:\.\d{1,6})?)")
_ADDRESS = re.compile(r"Memoryonthenode\(IP:([\da-f.:]{1,40}),")
_TASK_OF_RAY = re.compile(r"name=([^,]{1,60}),pid=(\d{1,10}),memoryused=([\d.]{1,12}GB)")


def start_of(kind: str, text: str, place: int) -> int | None:
    """Where the message begins whose needle is at ``place``; None where it is none."""
    if kind != "slurm" or not text.startswith(":OutOfMemory", place):
        return place
    begin = text.rfind("error:", max(place - _TASK_CHARACTERS, 0), place)
    return begin if begin >= 0 and _TASK.match(text, begin) else None


def parse_node(kind: str, text: str) -> NodeMessage:
    """The message of ``kind`` at the start of ``text``."""
    return {"slurm": _parse_slurm, "evicted": _parse_evicted, "ray": _parse_ray}[kind](text)


def _parse_slurm(text: str) -> NodeMessage:
    task, job = _TASK.match(text), _JOB.search(text[:80])
    return NodeMessage(
        "slurm",
        detail=f"task {task[2]} on {task[1]}" if task else "",
        job=job[1] if job and not task else "",
    )


def _parse_evicted(text: str) -> NodeMessage:
    held = [(each, size) for each in _HELD.finditer(text) if (size := parse_quantity(each[2]))]
    most, size = max(held, key=lambda pair: pair[1].bytes, default=(None, None))
    free = _FREE.search(text[:200])
    return NodeMessage(
        "evicted",
        detail=most[1] if most else "",
        allocated=size,
        promised=parse_quantity(most[3]) if most else None,
        limit=parse_quantity(free[1]) if free else None,
        free=parse_quantity(free[2]) if free else None,
    )


def _parse_ray(text: str) -> NodeMessage:
    node, share = _NODE.search(text), _SHARE.search(text)
    address, task = _ADDRESS.search(text), _TASK_OF_RAY.search(text)
    used, total = (parse_size(node[1]), parse_size(node[2])) if node else (None, None)
    return NodeMessage(
        "ray",
        detail=f"task {task[1]} (pid {task[2]})" if task else "",
        allocated=parse_size(task[3]) if task else None,
        total=total,
        free=_left(total, used),
        address=address[1] if address else "",
        share=float(share[1]) if share else None,
    )


def _left(total: Size | None, used: Size | None) -> Size | None:
    if total is None or used is None or used.bytes > total.bytes:
        return None
    return total - used
