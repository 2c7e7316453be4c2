"""Recorders with the default probes: ``memscope.record()``, and the one of ``memscope run``."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from memscope.facts import Fact, RunKind
from memscope.launch.environment import CUPTI, HISTORY, KEEP_LAST
from memscope.probes import default_probes
from memscope.probes.watch.steps import StepProbe
from memscope.recorder.active import make_default
from memscope.recorder.recorder import Recorder
from memscope.recorder.retention import DEFAULT_KEEP_LAST, parse_keep_last


def record(
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    keep_last: str = DEFAULT_KEEP_LAST,
    history: int = 0,
    cupti: bool = False,
) -> Recorder:
    """A Recorder at ``path`` that also samples this process, for use in a ``with`` block.

    ``history``: have torch remember who allocated each block, and its last ``history`` events, for
    the map of an out-of-memory error. ``cupti``: also record what other libraries allocate on the
    device.
    """
    return Recorder(
        path,
        force=force,
        probes=default_probes(history=history, cupti=cupti),
        keep_last=keep_last,
    )


def begin_recorder(path: Path) -> Recorder:
    """The recorder of this process at ``path``, which ``active_recorder`` returns.

    Raises MemscopeError if it cannot begin.
    """
    history = os.environ.get(HISTORY, "")
    probes = default_probes(
        history=int(history) if history.isdecimal() else 0, cupti=bool(os.environ.get(CUPTI))
    )
    keep_last = os.environ.get(KEEP_LAST) or DEFAULT_KEEP_LAST
    parse_keep_last(keep_last, f"{KEEP_LAST}={{}}")
    recorder = Recorder(path, probes=(*probes, StepProbe()), keep_last=keep_last)
    recorder.fact(Fact.RUN_KIND, RunKind.PROGRAM)
    recorder.fact(Fact.VERSIONS, {"python": platform.python_version()})
    make_default(recorder)
    return recorder
