"""The recordings of one test: one for each time that its body runs."""

from __future__ import annotations

import contextlib
import platform
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

from memscope.errors import MemscopeError
from memscope.facts import Fact
from memscope.pytest_plugin.allocator import forget_peaks, read_last
from memscope.pytest_plugin.folder import RecordingFolder, remove
from memscope.pytest_plugin.judgement import Judgement, judge_recordings, read_metrics

if TYPE_CHECKING:
    from pathlib import Path

    from memscope.analysis.limits.limits import Limit
    from memscope.analysis.metrics.metric import Metric
    from memscope.pytest_plugin.judgement import Compare
    from memscope.pytest_plugin.marks import Asked
    from memscope.recorder.recorder import Recorder

FLUSH_SECONDS = 60.0  # metrics of a half-written recording would be wrong


class Measurement:
    """Records while a test's body runs. A fault of ours becomes a reason, never an exception."""

    def __init__(
        self, test: str, asked: Asked, folder: RecordingFolder, *, fault: str | None = None
    ) -> None:
        """``fault``: why nothing can be recorded from the start."""
        self.test = test
        self.asked = asked
        self.skip_reason: str | None = None
        self.outcome: dict[str, Any] | None = None  # once the test has run
        self.fault = fault
        self.runs = 0
        self.paths: list[Path] = []  # of the repetitions that count
        self._folder = folder
        self._recorder: Recorder | None = None

    @property
    def is_running(self) -> bool:
        """Whether a recording is open."""
        return self._recorder is not None

    @property
    def path(self) -> Path | None:
        """The open recording, else the last one."""
        if self._recorder is not None:
            return self._recorder.path
        return self.paths[-1] if self.paths else None

    def start(self) -> None:
        """Open the next recording and make it the active one."""
        if self.fault or self._recorder is not None:
            return
        try:
            from memscope.launch.record import record

            run = self.runs + 1 if self.asked.runs > 1 else None
            path = self._folder.path_for(self.test, run)
            forget_peaks()
            self._recorder = record(path, force=True).__enter__()
            self.runs += 1
            self._recorder.fact(Fact.TEST, {"id": self.test, "run": self.runs})
            self._recorder.fact(Fact.VERSIONS, installed_versions())
        except Exception as error:
            self.fault = describe_fault(error)

    def stop(self, *, is_last: bool = False) -> None:
        """Close the recording; that of a warm-up is removed, unless the test ends with it."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        try:
            read_last(recorder)
        except Exception as error:
            self.fault = describe_fault(error)
        try:  # which samples once more: a short body has a reading of each
            recorder.__exit__(None, None, None)
        except Exception as error:
            self.fault = describe_fault(error)
        self.fault = self.fault or recorder.stopped
        if is_last or self.runs > self.asked.warmup:
            self.paths.append(recorder.path)
        else:
            remove(recorder.path)

    def metrics_now(self, limit: Limit) -> dict[str, Metric]:
        """Metrics of what has been recorded until now. Raises MemscopeError where that is none."""
        recorder = self._recorder
        if recorder is not None:
            read_last(recorder)
            recorder.flush(FLUSH_SECONDS)
            self.fault = self.fault or recorder.stopped
        if self.fault or recorder is None:
            raise MemscopeError(self.fault or "nothing is recorded outside of the test's body")
        return read_metrics(recorder.path, (limit,))

    def judge(self, compare: Compare) -> Judgement:
        """The verdicts on stopped recordings. ``compare`` gives more limits of the test's own."""
        if self.fault or not self.paths:
            return Judgement(unmeasured=self.fault or "nothing was recorded")
        own, shared = self.asked.limits, self.asked.shared
        if self.asked.is_marked and not own:  # the marker asked for those of the session
            own, shared = shared, ()
        try:
            return judge_recordings(self.paths, own, shared, compare)
        except Exception as error:
            return Judgement(unmeasured=describe_fault(error))

    def keep_only(self, path: Path) -> None:
        """Remove the recordings of other repetitions, unless all are to stay."""
        if self._folder.discard(other for other in self.paths if other != path):
            self.paths = [path]

    def discard(self) -> None:
        """Remove the recordings of a test that needs no second look, unless all are to stay."""
        if self._folder.discard(self.paths):
            self.paths = []


@cache
def installed_versions() -> dict[str, str]:
    """Of Python and torch, whether or not this test comes to import it."""
    versions = {"python": platform.python_version()}
    with contextlib.suppress(metadata.PackageNotFoundError):
        versions["torch"] = metadata.version("torch")
    return versions


def describe_fault(error: Exception) -> str:
    """What went wrong, as a reason."""
    return str(error) if isinstance(error, MemscopeError) else f"{type(error).__name__}: {error}"
