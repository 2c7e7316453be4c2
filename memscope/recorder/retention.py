"""Decides which segments of a recording to keep. A plan over a list, without files.

The newest segments are kept in full, older ones as sums per step, and the oldest are deleted. A
pinned segment stays as it is. Pins take at most half of the limit; pins of an out-of-memory error
are kept longest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memscope.errors import MemscopeError
from memscope.units import format_bytes, parse_bytes

DEFAULT_KEEP_LAST = "1GiB"
KEEP_LAST_HELP = f"what a recording may take on disk, or all (default: {DEFAULT_KEEP_LAST})"
LEAST_BYTES = 1 << 20
SEGMENTS_A_LIMIT = 8
MAX_SEGMENTS = 64

THIN, REMOVE = "thin", "remove"
OOM, MARK = "oom", "mark"


@dataclass(frozen=True, slots=True)
class OldSegment:
    """A segment that is complete. ``pin``: why it stays as it is (OOM or MARK), or None."""

    number: int
    path: Path
    bytes: int
    rows: int
    pin: str | None = None
    is_thinned: bool = False


@dataclass(frozen=True, slots=True)
class Retention:
    """The limit in bytes for all segments of a recording together."""

    limit_bytes: int

    @property
    def segment_bytes(self) -> int:
        """Size at which a segment is full and the next one begins."""
        return self.limit_bytes // SEGMENTS_A_LIMIT

    @property
    def old_bytes(self) -> int:
        """Bytes that complete segments may take, while one more is being downsampled."""
        return self.limit_bytes - 2 * self.segment_bytes

    def choose(self, old: Sequence[OldSegment]) -> tuple[str, OldSegment] | None:
        """What to do next with ``old`` (oldest first): which segment to THIN or REMOVE; None if all
        fit.

        Full segments may take half of the limit before they are downsampled; only then are
        downsampled ones deleted.
        """
        free = [each for each in old if each.pin is None]
        full = [each for each in free if not each.is_thinned]
        thinned = [each for each in free if each.is_thinned]
        if len(old) >= MAX_SEGMENTS and free:
            return REMOVE, (thinned or free)[0]
        if sum(each.bytes for each in old) <= self.old_bytes or not free:
            return None
        full_bytes = sum(each.bytes for each in old if not each.is_thinned)
        if full and (full_bytes > self.limit_bytes // 2 or not thinned):
            return THIN, full[0]
        return REMOVE, thinned[0]

    def unpin(self, old: Sequence[OldSegment]) -> OldSegment | None:
        """The segment to unpin if pins take more than half of the limit; else None."""
        pinned = [each for each in old if each.pin is not None]
        if sum(each.bytes for each in pinned) <= self.limit_bytes // 2:
            return None
        return next((each for each in pinned if each.pin != OOM), pinned[0])

    def first_to_go(self, old: Sequence[OldSegment]) -> OldSegment | None:
        """The segment to delete if there is no time to downsample; None if there is none."""
        for is_wanted in (
            lambda each: each.pin is None,
            lambda each: each.pin != OOM,
            lambda each: True,
        ):
            found = next(filter(is_wanted, old), None)
            if found is not None:
                return found
        return None


def parse_keep_last(text: str, written: str = "--keep-last {}") -> int | None:
    """The limit that ``text`` names, in bytes; None for "all". Raises MemscopeError.

    ``written``: how the user wrote it, for the message.
    """
    shown, example = written.format(text), written.format("1GiB")
    if not isinstance(text, str):
        raise MemscopeError(f"{shown} is no text.", f"Write {example}.")
    if text.strip().lower() == "all":
        return None
    try:
        limit = parse_bytes(text)
    except MemscopeError as error:
        raise MemscopeError(
            f"{shown}: {error.problem}", f"Write {example}, or {written.format('all')}."
        ) from None
    least = LEAST_BYTES * SEGMENTS_A_LIMIT
    if limit < least:
        raise MemscopeError(
            f"{shown} is too little to keep; the least is {format_bytes(least)}.",
            f"Write {written.format('64MiB')}, or {written.format('all')} to keep everything.",
        )
    return limit
