"""The recordings of one test: one for each run of its body."""

from __future__ import annotations

import contextlib
import platform
import sys
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

from memscope.errors import MemscopeError
from memscope.facts import Fact
from memscope.pytest_plugin.folder import RecordingFolder, remove
from memscope.pytest_plugin.judgement import Judgement, judge_recordings, read_metrics

if TYPE_CHECKING:
    from pathlib import Path

    from memscope.analysis.limits.limits import Limit
    from memscope.analysis.metrics.metric import Metric
    from memscope.pytest_plugin.judgement import Compare
    from memscope.pytest_plugin.marks import ItemSettings
    from memscope.recorder.recorder import Recorder

FLUSH_SECONDS = 60.0  # metrics of a half-written recording would be wrong


class Measurement:
    """Records while a test's body runs. Our own errors go into ``fault``, never into the test."""

    def __init__(
        self,
        test: str,
        settings: ItemSettings,
        folder: RecordingFolder,
        *,
        fault: str | None = None,
    ) -> None:
        """``fault`` says why recording is impossible from the start."""
        self.test = test
        self.settings = settings
        self.skip_reason: str | None = None
        self.result: dict[str, Any] | None = None  # set once the test has run
        self.fault = fault
        self.runs = 0
        self.paths: list[Path] = []  # without warm-up runs
        self._folder = folder
        self._recorder: Recorder | None = None

    @property
    def is_running(self) -> bool:
        """Whether a recording is open."""
        return self._recorder is not None

    @property
    def path(self) -> Path | None:
        """The open recording, or the last one, or None."""
        if self._recorder is not None:
            return self._recorder.path
        return self.paths[-1] if self.paths else None

    def start(self) -> None:
        """Open the next recording and make it the active one. Does nothing if one is open."""
        if self.fault or self._recorder is not None:
            return
        try:
            from memscope.launch.record import record

            run = self.runs + 1 if self.settings.runs > 1 else None
            path = self._folder.path_for(self.test, run)
            _reset_peaks()
            self._recorder = record(path, force=True).__enter__()
            self.runs += 1
            self._recorder.fact(Fact.TEST, {"id": self.test, "run": self.runs})
            self._recorder.fact(Fact.VERSIONS, installed_versions())
        except Exception as error:
            self.fault = describe_fault(error)

    def stop(self, *, is_last: bool = False) -> None:
        """Close the recording. A warm-up's is removed, unless the test ends with it."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        try:
            _read_counters(recorder)
        except Exception as error:
            self.fault = describe_fault(error)
        try:  # closing samples once more, so that even a short body has every reading
            recorder.__exit__(None, None, None)
        except Exception as error:
            self.fault = describe_fault(error)
        self.fault = self.fault or recorder.stopped
        if is_last or self.runs > self.settings.warmup:
            self.paths.append(recorder.path)
        else:
            remove(recorder.path)

    def metrics_now(self, limit: Limit) -> dict[str, Metric]:
        """Metrics of what has been recorded so far. Raises MemscopeError if nothing has."""
        recorder = self._recorder
        if recorder is not None:
            _read_counters(recorder)
            recorder.flush(FLUSH_SECONDS)
            self.fault = self.fault or recorder.stopped
        if self.fault or recorder is None:
            raise MemscopeError(self.fault or "nothing is recorded outside the test's body")
        return read_metrics(recorder.path, (limit,))

    def judge(self, compare: Compare) -> Judgement:
        """Verdicts on the closed recordings. ``compare`` adds limits from the baseline."""
        if self.fault or not self.paths:
            return Judgement(unmeasured=self.fault or "nothing was recorded")
        own, shared = self.settings.limits, self.settings.shared
        if (
            self.settings.is_marked and not own
        ):  # a bare marker takes the session's limits as its own
            own, shared = shared, ()
        try:
            return judge_recordings(self.paths, own, shared, compare)
        except Exception as error:
            return Judgement(unmeasured=describe_fault(error))

    def keep_only(self, path: Path) -> None:
        """Remove the recordings of other repetitions, unless all are kept (--memscope-output)."""
        if self._folder.discard(other for other in self.paths if other != path):
            self.paths = [path]

    def discard(self) -> None:
        """Remove the recordings of a passed test, unless all are kept (--memscope-output)."""
        if self._folder.discard(self.paths):
            self.paths = []


def _reset_peaks() -> None:
    """Empty torch's cache and reset its peaks, so that earlier tests do not count.

    Memory that is still allocated, for example by a fixture, counts for this test too. Torch is
    neither imported nor initialised.
    """
    if "torch" not in sys.modules:
        return
    from memscope.probes.torch.allocator import cuda_torch

    torch = cuda_torch()
    if torch is not None:
        torch.cuda.empty_cache()
        for device in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(device)


def _read_counters(recorder: Recorder) -> None:
    """Read torch's counters once more: the sampler's last reading may be older than the peak.

    Must run on the test's own thread.
    """
    if "torch" not in sys.modules:
        return
    from memscope.probes.torch.allocator import AllocatorProbe
    from memscope.probes.torch.device import DeviceProbe

    DeviceProbe()(recorder)
    AllocatorProbe()(recorder)


@cache
def installed_versions() -> dict[str, str]:
    """Versions of Python and torch, without importing torch."""
    versions = {"python": platform.python_version()}
    with contextlib.suppress(metadata.PackageNotFoundError):
        versions["torch"] = metadata.version("torch")
    return versions


def describe_fault(error: Exception) -> str:
    """An exception as a reason: our own message, or the type and text of any other."""
    return str(error) if isinstance(error, MemscopeError) else f"{type(error).__name__}: {error}"
