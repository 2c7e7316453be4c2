"""A snapshot for an HTML page: its explanation and its map, read in a guarded child process."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import IO, Any

from memscope.analysis.diagnosis.snapshot.explain import (
    SnapshotExplanation,
    describe,
    read_explanation,
)
from memscope.analysis.memory_map.block_picture import (
    BlockPicture,
    Panel,
    PictureCell,
    PictureRow,
    draw_picture,
)
from memscope.interop.snapshot.guarded import examine

_TARGET = "memscope.analysis.diagnosis.snapshot.picture:picture_stream"


@dataclass(frozen=True, slots=True)
class SnapshotPicture:
    """An explained snapshot with its map: when the last request failed, else at the dump.

    ``picture``: None if nothing was reserved.
    """

    explanation: SnapshotExplanation
    picture: BlockPicture | None


def read_snapshot_picture(path: str | os.PathLike[str]) -> SnapshotPicture:
    """Read the snapshot at ``path``. Raises MemscopeError."""
    found = examine(_TARGET, path)
    picture = found["picture"]
    return SnapshotPicture(read_explanation(found), _picture(picture) if picture else None)


def picture_stream(stream: IO[bytes], size: int) -> dict[str, Any]:
    """Runs in the child: the explanation and the map, as JSON."""
    from memscope.analysis.diagnosis.snapshot.analysis import analyse_snapshot
    from memscope.interop.snapshot.snapshot import read_snapshot

    found = analyse_snapshot(read_snapshot(stream, size), None)
    memory = found.memory if found.oom is None else found.oom.memory
    picture = None
    if len(memory.segments):
        picture = asdict(draw_picture(memory, found.stacks, found.pools, device=found.device))
    return {**describe(found), "picture": picture}


def _picture(found: dict[str, Any]) -> BlockPicture:
    return BlockPicture(**{**found, "panels": tuple(map(_panel, found["panels"]))})


def _panel(found: dict[str, Any]) -> Panel:
    return Panel(tuple(map(_row, found["rows"])), found["resolution_bytes"])


def _row(found: dict[str, Any]) -> PictureRow:
    cells = tuple(PictureCell(**cell) for cell in found["cells"])
    return PictureRow(**{**found, "cells": cells})
