"""Names of segments: PATH is the one being written, older ones lie beside it.

A process's own recording may be called ``STEM.1234.mscope``, too. The header decides what a file
is; its name only says where to look.
"""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Iterator
from pathlib import Path


def free_names(path: Path, number: int) -> Iterator[Path]:
    """Possible names for segment ``number`` of the recording at ``path``, in case one is taken."""
    for attempt in itertools.count(1):
        again = f"-{attempt}" if attempt > 1 else ""
        yield path.with_name(f"{path.stem}.{number:04d}{again}{path.suffix}")


def possible_segments(path: Path) -> dict[Path, int]:
    """Files beside ``path`` that are named like its older segments → the number in the name."""
    name = re.compile(
        re.escape(path.stem) + r"\.(\d{4,9})(?:-\d{1,6})?" + re.escape(path.suffix), re.ASCII
    )
    beside = path.parent.glob(f"{glob.escape(path.stem)}.*{glob.escape(path.suffix)}")
    return {each: int(match[1]) for each in beside if (match := name.fullmatch(each.name))}


def next_name(path: Path) -> Path:
    """Where the next segment begins, before it takes the place of ``path``."""
    return path.with_name(f".{path.name}.next")


def thin_name(path: Path) -> Path:
    """Where a segment is downsampled, before the result takes its place."""
    return path.with_name(f".{path.name}.thin")
