"""Environment variables that tell the processes of a run about it. Children inherit them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

RECORD = "MEMSCOPE_RECORD"  # folder that recordings go to; set, it asks for recording
OFF = "MEMSCOPE_OFF"  # set, nothing is recorded
HISTORY = "MEMSCOPE_HISTORY"  # events that torch keeps, and with them who allocated what
CUPTI = "MEMSCOPE_CUPTI"  # set, allocations outside torch are recorded by CUPTI
RUN_ID = "MEMSCOPE_RUN_ID"  # what the recordings of one run have in common
RUN_FILE = "MEMSCOPE_RUN_FILE"  # file of the first process; the others' lie beside it
RUN_PARENT = "MEMSCOPE_RUN_PARENT"  # pid of the recorded process above this one
RUN_RANK = "MEMSCOPE_RUN_RANK"  # rank of the recorded process above this one
KEEP_LAST = "MEMSCOPE_KEEP_LAST"  # what the recording of each process may take on disk

SUFFIX = ".mscope"


@dataclass(frozen=True, slots=True)
class Launch:
    """What the environment says about the run of this process."""

    folder: Path
    run_file: Path | None
    parent: int | None
    pid: int
    has_new_rank: bool

    @property
    def is_first(self) -> bool:
        """Whether no process above this one is recorded.

        A process that became another program by exec is its own parent here.
        """
        return self.parent in (None, self.pid)

    @property
    def is_recorded_at_once(self) -> bool:
        """Whether it is recorded from its start. Others are once they use CUDA or ask."""
        return self.is_first or self.has_new_rank

    def child_file(self, attempt: int = 0) -> Path:
        """Where this process is recorded if another process has the run's own file."""
        stem = self.run_file.stem if self.run_file else "run"
        again = f"-{attempt + 1}" if attempt else ""
        return self.folder / f"{stem}.{self.pid}{again}{SUFFIX}"


def read_launch(environment: Mapping[str, str], pid: int) -> Launch | None:
    """The run that ``environment`` names; None if nothing is to be recorded."""
    if not environment.get(RECORD) or environment.get(OFF):
        return None
    run_file = environment.get(RUN_FILE)
    parent = environment.get(RUN_PARENT, "")
    rank = environment.get("RANK", "")
    return Launch(
        folder=Path(os.path.abspath(environment[RECORD])),
        run_file=Path(run_file) if run_file else None,
        parent=int(parent) if parent.isdecimal() else None,
        pid=pid,
        has_new_rank=rank.isdecimal() and rank != environment.get(RUN_RANK),
    )


def program_environment(
    environment: Mapping[str, str], path: Path, run_id: str, hook_folder: Path | None
) -> dict[str, str]:
    """``environment`` for a program whose first process is recorded at ``path``.

    ``hook_folder`` goes to the front of PYTHONPATH, if our ``.pth`` file is not installed.
    """
    given = {name: text for name, text in environment.items() if name not in (RUN_PARENT, RUN_RANK)}
    given |= {RECORD: str(path.parent), RUN_FILE: str(path), RUN_ID: run_id}
    if hook_folder is not None:
        rest = given.get("PYTHONPATH")
        given["PYTHONPATH"] = f"{hook_folder}{os.pathsep}{rest}" if rest else str(hook_folder)
    return given


def say_unrecorded(error: BaseException) -> None:
    """Say in one line on stderr why nothing is recorded, and that the program goes on."""
    problem = getattr(error, "problem", None) or f"{type(error).__name__}: {error}"
    with contextlib.suppress(Exception):
        print(f"memscope: not recorded: {problem} The program goes on.", file=sys.stderr)
