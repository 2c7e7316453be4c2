"""The state of a recording: running, complete, cut or damaged. Decided only here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from memscope.text import clean
from memscope.units import format_seconds

MAX_NAMES = 3


class StateName(StrEnum):
    """The states of a recording."""

    RUNNING = "running"  # its writer holds the lock
    COMPLETE = "complete"  # it has its end mark
    CUT = "cut"  # neither: the program was killed or crashed
    DAMAGED = "damaged"  # bytes of it are not what was written


@dataclass(frozen=True, slots=True)
class State:
    """The state of a recording, and how much of it was read.

    ``removed_rows``: old events that the recorder deleted. ``thinned_rows``: old events that mostly
    became sums per step and kind. Neither counts as lost; all events are there from
    ``whole_from_ns`` on, in the recording's own time. ``left_out``: files of the same run that
    cannot be read.
    """

    name: StateName
    batches: int
    rows: int
    lost_rows: int
    lost_bytes: int
    removed_rows: int = 0
    thinned_rows: int = 0
    whole_from_ns: int = 0
    left_out: tuple[str, ...] = ()

    @property
    def is_partial(self) -> bool:
        """Whether metrics may miss events that happened."""
        return self.lacks_events or bool(self.left_out)

    @property
    def lacks_events(self) -> bool:
        """Whether events of this recording are missing, whatever the rest of its run."""
        return self.name in (StateName.CUT, StateName.DAMAGED)

    def __str__(self) -> str:
        return f"{self._others}{self._own}"

    @property
    def _own(self) -> str:
        """Text about the recording itself."""
        read = f"{self.rows:,} events read in {self.batches:,} batches{self._kept}"
        if self.name is StateName.DAMAGED:
            lost = f"{self.lost_rows:,} events" if self.lost_rows else f"{self.lost_bytes:,} bytes"
            return f"damaged: {read}, {lost} lost"
        if self.name is StateName.CUT:
            return f"cut: the program ended before the recording was closed; {read}"
        return f"{self.name}: {read}"

    @property
    def _others(self) -> str:
        """Prefix naming run files that could not be read."""
        if not self.left_out:
            return ""
        count = len(self.left_out)
        what = "1 file of this run has" if count == 1 else f"{count:,} files of this run have"
        names = [clean(name, 60) for name in self.left_out[:MAX_NAMES]]
        more = ", …" if count > MAX_NAMES else ""
        return f"{what} no readable header ({', '.join(names)}{more}); this one is "

    @property
    def _kept(self) -> str:
        words = []
        if self.removed_rows:
            words.append(f"{self.removed_rows:,} old events were deleted")
        if self.thinned_rows:
            words.append(f"{self.thinned_rows:,} old events were downsampled to sums per step")
        if not words:
            return ""
        since = format_seconds(self.whole_from_ns / 1e9)
        return f" ({', '.join(words)}; complete from {since} on)"


def decide_state(*, is_locked: bool, has_end: bool, has_damage: bool) -> StateName:
    """The state that follows from a file's lock, end marker and damage."""
    if has_damage:
        return StateName.DAMAGED
    if is_locked:
        return StateName.RUNNING
    return StateName.COMPLETE if has_end else StateName.CUT
