"""The recording of this process: begun at its start, at its first use of CUDA, or on request."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from memscope.errors import MemscopeError
from memscope.launch import environment as names
from memscope.launch.environment import Launch, read_launch, say_unrecorded
from memscope.probes.torch.cuda_watch import watch_cuda
from memscope.recorder.active import set_own_recorder

if TYPE_CHECKING:  # imported where a file is opened: children that need none load no pyarrow
    from memscope.recorder.recorder import Recorder

_opened: dict[int, Recorder | None] = {}  # by pid: a forked child finds its parent's alone


def start_process() -> None:
    """Record this process now, or as soon as it uses CUDA."""
    launch = read_launch(os.environ, os.getpid())
    if launch is None:
        return
    set_own_recorder(own_recorder)
    watch_cuda(own_recorder)
    if launch.is_recorded_at_once:
        own_recorder()


def own_recorder() -> Recorder | None:
    """The recorder of this process. Opens it if that has not happened yet.

    None if nothing is to be recorded, or if the file could not be opened; the reason is then
    printed once.
    """
    pid = os.getpid()
    if pid not in _opened:
        launch = read_launch(os.environ, pid)
        _opened[pid] = None
        if launch is not None:
            try:
                _opened[pid] = _open(launch)
            except Exception as error:
                say_unrecorded(error)
    return _opened[pid]


def _open(launch: Launch) -> Recorder:
    from memscope.launch.record import begin_recorder

    if launch.is_first:
        _check_folder(launch.folder)
    recorder = _first_free(launch, begin_recorder)
    os.environ[names.RUN_PARENT] = str(launch.pid)
    if launch.has_new_rank:
        os.environ[names.RUN_RANK] = os.environ["RANK"]
    _close_with_multiprocessing(recorder)
    return recorder


def _check_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MemscopeError(f"{folder} cannot be created ({error.strerror}).") from None


def _first_free(launch: Launch, begin: Callable[[Path], Recorder]) -> Recorder:
    """Record in the run's own file if this is the first process, else in a file beside it."""
    if launch.run_file is None:
        return _begin_run(launch, begin)
    if launch.is_first and not launch.run_file.exists():
        with contextlib.suppress(FileExistsError):
            return _begin(launch.run_file, begin)
    for attempt in itertools.count():
        path = launch.child_file(attempt)
        if not path.exists():
            with contextlib.suppress(FileExistsError):
                return _begin(path, begin)
    raise AssertionError("unreachable")


def _begin_run(launch: Launch, begin: Callable[[Path], Recorder]) -> Recorder:
    """Begin a run that only the environment variable asked for. This process names it."""
    os.environ.setdefault(names.RUN_ID, uuid.uuid4().hex)
    for number in itertools.count(1):
        path = launch.folder / f"run-{number:03d}{names.SUFFIX}"
        if not path.exists():
            with contextlib.suppress(FileExistsError):
                recorder = _begin(path, begin)
                os.environ[names.RUN_FILE] = str(path)
                return recorder
    raise AssertionError("unreachable")


def _begin(path: Path, begin: Callable[[Path], Recorder]) -> Recorder:
    """Raises FileExistsError if another process took the name at the same moment."""
    try:
        return begin(path)
    except MemscopeError:
        if path.exists():
            raise FileExistsError(path) from None
        raise


def _close_with_multiprocessing(recorder: Recorder) -> None:
    """Children of multiprocessing leave by os._exit, without atexit, but run finalizers."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, recorder.close, exitpriority=-100)
