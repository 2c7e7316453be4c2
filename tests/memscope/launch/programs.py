"""Programs run with and without memscope, as real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memscope.events import Kind
from memscope.reader.recording import Recording
from tests.paths import ROOT

PYTHON = sys.executable
HOOK = ROOT / "memscope" / "launch" / "site"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended and what it wrote; lines of memscope apart."""

    code: int
    out: str
    err: str
    said: tuple[str, ...]


def run_process(
    command: Sequence[object],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
) -> Ended:
    """Run ``command`` in ``folder`` to its end."""
    run = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**clean_environment(), **(environment or {})},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines = run.stderr.splitlines(keepends=True)
    is_ours = [line.startswith(("memscope:", "recording:")) for line in lines]
    others = "".join(line for line, ours in zip(lines, is_ours, strict=True) if not ours)
    said = tuple(line for line, ours in zip(lines, is_ours, strict=True) if ours)
    return Ended(run.returncode, run.stdout, others, said)


def clean_environment() -> dict[str, str]:
    """This process's environment without what would record or divert."""
    return {name: text for name, text in os.environ.items() if not name.startswith("MEMSCOPE")}


def record(folder: Path, *words: object, stdin: str = "", **environment: str) -> Ended:
    """``memscope run -o run.mscope WORDS`` in ``folder``."""
    command = [PYTHON, "-m", "memscope", "run", "-o", "run.mscope", *words]
    return run_process(command, folder, environment, stdin)


def facts_of(path: Path) -> dict[str, Any]:
    """Last value of each fact of a recording."""
    found: dict[str, Any] = {}
    with Recording(path) as recording:
        for batch in recording.batches():
            for row in batch.where(Kind.FACT).tolist():
                found[batch.name(row) or ""] = batch.data(row)
    return found


def steps_of(path: Path) -> list[int]:
    """Numbers of its steps."""
    with Recording(path) as recording:
        return [
            int(step)
            for batch in recording.batches()
            for step in batch["step"][batch.where(Kind.STEP)]
        ]


def marks_of(path: Path) -> list[str]:
    """Names of its marks."""
    with Recording(path) as recording:
        return [
            batch.name(row) or ""
            for batch in recording.batches()
            for row in batch.where(Kind.MARK).tolist()
        ]
