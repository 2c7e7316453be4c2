"""One run of a marked test: its limits, its recording, its verdicts."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from memscope.errors import MemscopeError

if TYPE_CHECKING:
    import pytest

    from memscope.analysis.limits import Limit, Verdict
    from memscope.writer import Recorder


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of a test's limits. ``unmeasured`` says why nothing could be judged at all."""

    verdicts: tuple[Verdict, ...] = ()
    unmeasured: str | None = None

    @property
    def broken(self) -> tuple[Verdict, ...]:
        return self._all("fail")

    @property
    def near(self) -> tuple[Verdict, ...]:
        """Within the limit, and past where it warns."""
        return self._all("warn")

    @property
    def unjudged(self) -> tuple[Verdict, ...]:
        """What could not be measured; what does not apply as well, where nothing else was judged.

        A test that measured nothing has shown nothing.
        """
        if self._all("pass", "warn", "fail"):
            return self._all("not measured")
        return self.verdicts

    def _all(self, *kinds: str) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.verdict in kinds)


def parse_limits(marker: pytest.Mark) -> tuple[Limit, ...]:
    """The limits of one marker. Raises MemscopeError for what is not ``FIGURE OP VALUE``."""
    from memscope.analysis.limits import parse_limit

    example = '@pytest.mark.memscope("memory.peak_bytes <= 2 GiB")'
    if marker.kwargs:
        raise MemscopeError(f"the marker takes no {', '.join(marker.kwargs)}.", f"Write {example}.")
    if not marker.args:
        raise MemscopeError("the marker names no limit.", f"Write {example}.")
    for limit in marker.args:
        if not isinstance(limit, str):
            raise MemscopeError(f"{limit!r} is not a text.", f"Write {example}.")
    return tuple(parse_limit(limit) for limit in marker.args)


class Measurement:
    """Records while a test's body runs. A fault of ours becomes a reason, never an exception."""

    def __init__(self, test: str, markers: Iterable[pytest.Mark]) -> None:
        """Raises MemscopeError where a limit cannot be read."""
        self.test = test
        self.skip_reason: str | None = None
        self.limits: tuple[Limit, ...] = ()
        self._folder: Path | None = None
        self._recorder: Recorder | None = None
        self._fault: str | None = None
        try:
            self.limits = tuple(limit for marker in markers for limit in parse_limits(marker))
        except MemscopeError:
            raise
        except Exception as error:
            self._fault = _sentence(error)

    @property
    def path(self) -> Path | None:
        """The recording, while there is one."""
        return self._recorder.path if self._recorder else None

    def start(self) -> None:
        """Open a recording and make it the active one."""
        if self._fault:
            return
        try:
            from memscope.writer import record

            self._folder = Path(tempfile.mkdtemp(prefix="memscope-pytest-", dir=_base_folder()))
            recorder = record(self._folder / f"{_file_name(self.test)}.mscope")
            self._recorder = recorder.__enter__()
            recorder.fact("test", {"id": self.test})
        except Exception as error:
            self._fault = _sentence(error)

    def stop(self) -> None:
        """Close the recording; it stays on disk."""
        if self._recorder is None:
            return
        try:
            self._recorder.__exit__(None, None, None)
        except Exception as error:
            self._fault = _sentence(error)

    def judge(self) -> Judgement:
        """The verdicts on a stopped recording."""
        if self._recorder is None or self._fault:
            return Judgement(unmeasured=self._fault or "nothing was recorded")
        try:
            return Judgement(_judge(self._recorder.path, self.limits), self._recorder.stopped)
        except Exception as error:
            return Judgement(unmeasured=_sentence(error))

    def discard(self) -> None:
        """Remove the recording of a test that needs no second look."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                shutil.rmtree(self._folder)


def _judge(path: Path, limits: tuple[Limit, ...]) -> tuple[Verdict, ...]:
    from memscope.analysis.figures import figures
    from memscope.analysis.limits import judge
    from memscope.analysis.timeline import read_timeline
    from memscope.recording import open_recording

    with open_recording(path) as recording:
        verdicts = judge(figures(read_timeline(recording)), limits)
    return tuple(verdict for verdict in verdicts if verdict.is_named)


def _base_folder() -> str | None:
    return os.environ.get("MEMSCOPE_DIR") or None


def _file_name(test: str) -> str:
    """The test's own name as a file name, its parameters included ("test_decode-keep20")."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", test.rpartition("::")[2]).strip("-")[:80] or "test"


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, MemscopeError) else f"{type(error).__name__}: {error}"
