"""Where the segments of a recording lie: PATH is the one being written, older ones beside it.

A process's own recording may be called ``STEM.1234.mscope``, too: what a file is stands in its
header, and its name only says where to look.
"""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Iterator
from pathlib import Path


def free_names(path: Path, number: int) -> Iterator[Path]:
    """Names for segment ``number`` of the recording at ``path``, the next where one is taken."""
    for attempt in itertools.count(1):
        again = f"-{attempt}" if attempt > 1 else ""
        yield path.with_name(f"{path.stem}.{number:04d}{again}{path.suffix}")


def possible_segments(path: Path) -> dict[Path, int]:
    """Files beside ``path`` that are named like older segments of it, and the number there."""
    name = re.compile(
        re.escape(path.stem) + r"\.(\d{4,9})(?:-\d{1,6})?" + re.escape(path.suffix), re.ASCII
    )
    beside = path.parent.glob(f"{glob.escape(path.stem)}.*{glob.escape(path.suffix)}")
    return {each: int(match[1]) for each in beside if (match := name.fullmatch(each.name))}


def next_name(path: Path) -> Path:
    """Where the next segment is begun before it takes the place of ``path``."""
    return path.with_name(f".{path.name}.next")


def thin_name(path: Path) -> Path:
    """Where a segment is thinned before the result takes its place."""
    return path.with_name(f".{path.name}.thin")
