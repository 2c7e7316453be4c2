"""Sums per step and kind, for rows that came faster than they can be written."""

from __future__ import annotations

from memscope.events import KINDS, NEVER_SUMMED, Kind
from memscope.recorder.rows import Row, make_row


class Backlog:
    """Sums of the rows that were taken out of a full recorder's list."""

    def __init__(self) -> None:
        self.dropped_rows = 0
        self._sums: dict[tuple[int, int, str | None], list[int]] = {}

    def shorten(self, rows: list[Row], start: int) -> None:
        """Replace ``rows`` from ``start`` on by sums. Other threads may append meanwhile."""
        excess, kept = rows[start:], []
        for row in excess:
            if row[1] in NEVER_SUMMED:
                kept.append(row)
            else:
                self._add(row)
        self.dropped_rows += len(excess) - len(kept)
        rows[start : start + len(excess)] = kept  # before what has come meanwhile

    def take(self) -> list[Row]:
        """The sums as rows. Each sum is returned once."""
        sums, self._sums = self._sums, {}
        return [
            make_row(
                Kind.DROPPED,
                name,
                {"kind": KINDS[kind], "rows": count},
                t_ns=at,
                step=step,
                bytes=size,
                value=count,
                **({"duration_ns": duration} if timed == count else {}),
            )
            for (kind, step, name), (count, size, duration, timed, at) in sums.items()
        ]

    def _add(self, row: Row) -> None:
        sums = self._sums.setdefault((row[1], row[2], row[4]), [0] * 5)
        sums[0] += 1
        sums[1] += row[5] or 0
        sums[2] += row[6] or 0
        sums[3] += row[6] is not None
        sums[4] = row[0]
