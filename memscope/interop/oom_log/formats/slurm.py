"""Tasks that Slurm killed at the memory limit of their job.

Worded by src/slurmd/slurmstepd (control groups of jobs) and by srun when a task ends. Texts come
without white space.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from memscope.interop.oom_log.formats.message import Format, Message

SLURM_JOB = "SLURM_JOB_ID"


class SlurmKind(StrEnum):
    """The one kind."""

    KILL = "slurm"


@dataclass(frozen=True, slots=True)
class SlurmMessage(Message):
    """One kill. ``detail``: the task and its node, "" if not given. ``job``: the job's number."""

    kind: SlurmKind
    job: str = ""

    @property
    def options(self) -> dict[str, str]:
        """What it adds to `LogContext.options`, if all messages of a log agree."""
        return {SLURM_JOB: self.job} if self.job else {}


_TASK = re.compile(r"error:([\w.-]{1,64}):tasks?([\d,-]{1,40}):OutOfMemory(?!\w)")
_TASK_CHARACTERS = 120  # that may stand before the needle in its line
_JOB = re.compile(r"in(?:StepId=|step)(\d{1,12})")


def _find_start(kind: SlurmKind, text: str, place: int) -> int | None:
    if not text.startswith(":OutOfMemory", place):
        return place
    begin = text.rfind("error:", max(place - _TASK_CHARACTERS, 0), place)
    return begin if begin >= 0 and _TASK.match(text, begin) else None


def _parse(kind: SlurmKind, text: str) -> SlurmMessage:
    task, job = _TASK.match(text), _JOB.search(text[:80])
    return SlurmMessage(
        kind,
        detail=f"task {task[2]} on {task[1]}" if task else "",
        job=job[1] if job and not task else "",
    )


FORMAT = Format(
    name="slurm",
    message=SlurmMessage,
    needles={
        SlurmKind.KILL: (
            "oom_killeventin",
            "oom_killeventsin",
            "oom-killevent(s)in",
            ":OutOfMemory",
        )
    },
    words=("oom_kill event", "oom-kill event", "Out Of Memory"),
    find_start=_find_start,
    parse=_parse,
)
