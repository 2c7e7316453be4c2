"""Which process of a job wrote a line of a log, by the line's prefix."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PLACE = re.compile(
    # kubectl logs --prefix; stern's lines are written so, too, with their namespace
    r"\[pod/(?P<pod>(?:[\w.-]{1,63}/)?[\w.-]{1,253})/[\w.-]{1,63}\]"
    r"|\[host/(?P<host>[\w.-]{1,253})\]"  # as lines of pdsh are written
    r"|(?:^|\s)(?P<container>[\w.-]{1,60}[-_]\d{1,6})\s{1,40}\|"  # docker compose logs
)
_GLOBAL = (
    re.compile(r"\[rank(\d{1,6})\]"),  # torch's own, in every line of a traceback
    re.compile(r"\[\d{1,6},(\d{1,6})\]<std(?:err|out)>"),  # mpirun --tag-output
    re.compile(r"\brank[\s=]?(\d{1,6})\b"),
    re.compile(r"\[default(\d{1,6})\]"),  # torchrun --tee: the local rank
    re.compile(r"(?:^|\s)(\d{1,6}):(?=\s|$)"),  # srun --label
)
# "Worker_DP0_TP1" of vLLM, "... TP1]" of SGLang.
_AXIS = re.compile(r"(?<![A-Za-z\d])(DP|PP|TP|EP)(\d{1,6})(?![A-Za-z\d])")
# Ray: "(RayTrainWorker pid=41, ip=10.0.0.7)".
_RAY = re.compile(
    r"\([^()]{0,60}?(?:Worker|Actor|Trainer)[^()]{0,60}?pid=(\d{1,10})"
    r"(?:, ?ip=([\d.:a-f]{1,40}))?\)"
)


@dataclass(frozen=True, slots=True)
class Writer:
    """A process of a job. ``place``: its pod, container or host; ``ranks``: coarse ones first."""

    place: str = ""
    ranks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in a sentence, "" if unknown."""
        return ", ".join(part for part in (self.place, " ".join(self.ranks)) if part)

    def coarser(self) -> tuple[Writer, ...]:
        """This writer and all less exact names for it. The last one names nobody."""
        if not self.place and len(self.ranks) < 2:  # most are so, of jobs of many ranks
            return (self, _NOBODY) if self.ranks else (self,)
        ranks = [self.ranks[:count] for count in range(len(self.ranks), -1, -1)]
        places = (self.place, "") if self.place else ("",)
        return tuple(Writer(place, each) for place in places for each in ranks)


_NOBODY = Writer()


def find_writer(prefix: str) -> Writer:
    """Who wrote a line that begins with ``prefix``."""
    place = _PLACE.search(prefix)
    names = [name for name in place.groups() if name] if place else [""]
    return Writer(names[0], _ranks(prefix))


def _ranks(prefix: str) -> tuple[str, ...]:
    for pattern in _GLOBAL:
        if match := pattern.search(prefix):
            return (f"rank {int(match[1])}",)
    axes = tuple(dict.fromkeys(f"{name}{int(rank)}" for name, rank in _AXIS.findall(prefix)))
    if axes:
        return axes[:4]
    if match := _RAY.search(prefix):
        return (f"pid {match[1]}" + (f" at {match[2]}" if match[2] else ""),)
    return ()
