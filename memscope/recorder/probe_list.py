"""The probes of a recorder. Each can fail without the others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from memscope.facts import probe_fact

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

Probe = Callable[["Recorder"], None]


class ProbeList:
    """Calls probes until they fail, and closes all of them at the end."""

    def __init__(self, probes: Sequence[Probe]) -> None:
        self._all = tuple(probes)
        self._working = list(probes)

    def begin(self, recorder: Recorder) -> None:
        """Let probes begin, on the program's thread. Their readings are taken on the writer's."""
        for probe in self._all:
            begin = getattr(probe, "begin", None)
            if begin is not None:
                with contextlib.suppress(Exception):
                    begin(recorder)

    def sample(self, recorder: Recorder) -> None:
        """Take one reading of each probe. A probe that raises is named in a fact and not called
        again.
        """
        for probe in tuple(self._working):
            try:
                probe(recorder)
            except Exception as error:
                self._working.remove(probe)
                name = getattr(probe, "name", type(probe).__name__)
                recorder.fact(probe_fact(name), {"stopped": f"{type(error).__name__}: {error}"})

    def close(self) -> None:
        """Let probes restore what they changed in the program, such as a function they wrapped."""
        for probe in self._all:
            close = getattr(probe, "close", None)
            if close is not None:
                with contextlib.suppress(Exception):
                    close()
