"""How whole a recording is: decided and named in one place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from memscope.text import clean
from memscope.units import format_seconds

MAX_NAMES = 3


class StateName(StrEnum):
    """How whole a recording can be."""

    RUNNING = "running"  # its writer holds the lock
    COMPLETE = "complete"  # it has its end mark
    CUT = "cut"  # neither: the program was killed or crashed
    DAMAGED = "damaged"  # bytes of it are not what was written


@dataclass(frozen=True, slots=True)
class State:
    """How whole a recording is: running, complete, cut or damaged.

    ``removed_rows``: events that are older than is kept; of ``thinned_rows`` most became sums a
    step and kind. Both are as the recorder was told, so that nothing is lost; every event is there
    from ``whole_from_ns`` on, by the recording's own time.
    ``left_out``: names of files of the same run that cannot be read.
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
        """Whether the recording itself does, whatever else is of its run."""
        return self.name in (StateName.CUT, StateName.DAMAGED)

    def __str__(self) -> str:
        return f"{self._others}{self._own}"

    @property
    def _own(self) -> str:
        """Of the recording itself."""
        read = f"{self.rows:,} events read in {self.batches:,} batches{self._kept}"
        if self.name is StateName.DAMAGED:
            lost = f"{self.lost_rows:,} events" if self.lost_rows else f"{self.lost_bytes:,} bytes"
            return f"damaged: {read}, {lost} lost"
        if self.name is StateName.CUT:
            return f"cut: the program ended before the recording was closed; {read}"
        return f"{self.name}: {read}"

    @property
    def _others(self) -> str:
        """Of the run that it is of."""
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
            words.append(f"{self.removed_rows:,} events are older than is kept")
        if self.thinned_rows:
            words.append(f"of {self.thinned_rows:,} old ones there are sums a step")
        if not words:
            return ""
        since = format_seconds(self.whole_from_ns / 1e9)
        return f" ({', '.join(words)}; all there is from {since} on)"


def decide_state(*, is_locked: bool, has_end: bool, has_damage: bool) -> StateName:
    """The one place where a recording's state is named."""
    if has_damage:
        return StateName.DAMAGED
    if is_locked:
        return StateName.RUNNING
    return StateName.COMPLETE if has_end else StateName.CUT
