"""What is recorded of a program that knows nothing of it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from memscope.launch.environment import CUPTI, HISTORY, KEEP_LAST
from memscope.probes import default_probes
from memscope.probes.steps import StepProbe
from memscope.retention import DEFAULT_KEEP_LAST, parse_keep_last
from memscope.writer import Recorder, make_default


def begin_recorder(path: Path) -> Recorder:
    """A recorder of this process at ``path``, which ``active_recorder`` finds.

    Raises MemscopeError where none can be begun.
    """
    history = os.environ.get(HISTORY, "")
    probes = default_probes(
        history=int(history) if history.isdecimal() else 0, cupti=bool(os.environ.get(CUPTI))
    )
    keep_last = os.environ.get(KEEP_LAST) or DEFAULT_KEEP_LAST
    parse_keep_last(keep_last, f"{KEEP_LAST}={{}}")
    recorder = Recorder(path, probes=(*probes, StepProbe()), keep_last=keep_last)
    recorder.fact("run.kind", "program")
    recorder.fact("versions", {"python": platform.python_version()})
    make_default(recorder)
    return recorder
