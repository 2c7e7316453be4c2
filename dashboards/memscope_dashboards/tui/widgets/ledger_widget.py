"""The ledger: where the memory of each device is, in bytes and as a share."""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.ledger.ledger import Ledger
from memscope.analysis.ledger.lines import Coverage, LedgerLine
from memscope.text import clean
from memscope.units import format_bytes
from memscope_dashboards.tui.feed import Snapshot
from memscope_dashboards.tui.palette import Role
from memscope_dashboards.tui.styled_line import StyledLine, pad, paragraph, rule
from memscope_dashboards.tui.widgets.lines_widget import LinesWidget

SIZE_WIDTH = 12
SHARE_WIDTH = 7
WORDS_WIDTH = 47
BAR_FROM = 70
SHARE_FROM = 50
MAX_BAR = 40
FEW_DEVICES = 2  # shown when space is short


class LedgerWidget(LinesWidget):
    """The ledger as in `memscope summary`, then what is partial or could not be measured.

    ``most_rows``: show only this many lines, the largest ones, without reasons. 0 shows all.
    """

    most_rows = 0

    def compose_lines(self, snapshot: Snapshot, width: int, height: int) -> list[StyledLine]:
        """See the class."""
        ledgers = snapshot.summary.ledgers if snapshot.summary is not None else ()
        if not ledgers:
            nothing = "nothing is known about a device yet: no readings from torch or NVML"
            return [rule("Ledger", (), width), *paragraph(nothing, Role.DIM, width)]
        lines: list[StyledLine] = []
        shown = ledgers[:FEW_DEVICES] if self.most_rows else ledgers
        most_rows = self.most_rows if len(shown) == 1 else self.most_rows // 2
        for ledger in shown:
            lines += [()] if lines and not self.most_rows else []
            lines += [heading(ledger, width), *entries(ledger, width, most_rows)]
            lines += [] if self.most_rows else reasons(ledger, width)
        return lines + hidden(len(ledgers) - len(shown))


def hidden(devices: int) -> list[StyledLine]:
    """How to see the other devices."""
    noun = "device" if devices == 1 else "devices"
    return [((f"… {devices} more {noun} with ", Role.DIM), ("m", Role.KEY))] if devices else []


def heading(ledger: Ledger, width: int) -> StyledLine:
    """The device, the source of its numbers, and their time."""
    index = f" {ledger.device}" if ledger.device >= 0 else ""
    when = ((f"by {ledger.source}, at {ledger.at_ns / 1e9:.1f} s", Role.DIM),)
    return rule(clean(f"Device{index}, {ledger.name}", 60), when, width)


def entries(ledger: Ledger, width: int, most_rows: int = 0) -> list[StyledLine]:
    """The lines that have bytes, or the ``most_rows`` largest of them.

    A part is never larger than its parent, so a shown part always has its parent above it.
    """
    whole = max(ledger.total.bytes or 0, 1)
    known = [
        (depth, entry)
        for depth, entry in ledger.lines
        if entry.bytes is not None and (entry.bytes or not entry.is_rest)
    ]
    ranked = sorted(known, key=lambda line: -(line[1].bytes or 0))
    kept = {entry.key for _, entry in (ranked[:most_rows] if most_rows else ranked)}
    return [entry_line(entry, depth, whole, width) for depth, entry in known if entry.key in kept]


def entry_line(entry: LedgerLine, depth: int, whole: int, width: int) -> StyledLine:
    """Words, bytes, share, and a bar if there is room. ~ marks a partial line."""
    size = entry.bytes or 0
    mark = "~" if entry.coverage == Coverage.PARTIAL and not entry.is_rest else " "
    room = (
        min(max(width - SIZE_WIDTH - SHARE_WIDTH - WORDS_WIDTH, 0), MAX_BAR)
        if width >= BAR_FROM
        else 0
    )
    words = "  " * depth + clean(entry.words, 60)
    role = Role.STRONG if depth < 2 else Role.TEXT if entry.parts else Role.DIM
    share = f"{size / whole:>{SHARE_WIDTH}.1%}" if width >= SHARE_FROM else ""
    filled = round(min(max(size / whole, 0.0), 1.0) * room)
    return (
        *pad(((words, role),), max(width - SIZE_WIDTH - len(share) - room - 2, 8)),
        (f"{format_bytes(size):>{SIZE_WIDTH - 2}} {mark}", Role.TEXT),
        (f"{share}  ", Role.DIM),
        ("█" * filled, Role.MEMORY),
        ("·" * (room - filled), Role.FREE),
    )


def reasons(ledger: Ledger, width: int) -> Iterator[StyledLine]:
    """Lines that are partial or missing, grouped by their reason."""
    found: dict[tuple[Coverage, str], list[str]] = {}
    for coverage, short in ledger.coverage.items():
        for entry in short if coverage != Coverage.MEASURED else ():
            found.setdefault((coverage, entry.reason), []).append(entry.words)
    for (coverage, reason), words in found.items():
        head = "~ partial" if coverage is Coverage.PARTIAL else str(coverage)
        text = f"{head}: {clean(', '.join(words), 200)} ({clean(reason, 300)})"
        first, *rest = paragraph(text, Role.DIM, width, indent=2) or [()]
        yield from (first, *rest)
