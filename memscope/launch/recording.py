"""What is recorded of a program that knows nothing of it."""

from __future__ import annotations

import platform
from pathlib import Path

from memscope.probes import default_probes
from memscope.probes.steps import StepProbe
from memscope.writer import Recorder, make_default


def begin_recorder(path: Path) -> Recorder:
    """A recorder of this process at ``path``, which ``active_recorder`` finds."""
    recorder = Recorder(path, probes=(*default_probes(), StepProbe()))
    recorder.fact("run.kind", "program")
    recorder.fact("versions", {"python": platform.python_version()})
    make_default(recorder)
    return recorder
