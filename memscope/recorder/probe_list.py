"""The probes of a recorder, each able to fail alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from memscope.facts import probe_fact

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

Probe = Callable[["Recorder"], None]


class ProbeList:
    """Asks probes for readings until they fail, and lets go of all of them at the end."""

    def __init__(self, probes: Sequence[Probe]) -> None:
        self._all = tuple(probes)
        self._working = list(probes)

    def begin(self, recorder: Recorder) -> None:
        """On the program's thread; on the writer's they are asked for readings."""
        for probe in self._all:
            begin = getattr(probe, "begin", None)
            if begin is not None:
                with contextlib.suppress(Exception):
                    begin(recorder)

    def sample(self, recorder: Recorder) -> None:
        """One reading of each; one that raises is named and asked no more."""
        for probe in tuple(self._working):
            try:
                probe(recorder)
            except Exception as error:
                self._working.remove(probe)
                name = getattr(probe, "name", type(probe).__name__)
                recorder.fact(probe_fact(name), {"stopped": f"{type(error).__name__}: {error}"})

    def close(self) -> None:
        """Let go of what probes hold in the program, such as a function that they wrapped."""
        for probe in self._all:
            close = getattr(probe, "close", None)
            if close is not None:
                with contextlib.suppress(Exception):
                    close()
