"""The ledger of a recording on a GPU."""

from __future__ import annotations

from pathlib import Path

from memscope.analysis.ledger.ledger import Ledger, make_ledgers
from memscope.analysis.timeline.read import read_timeline
from memscope.reader.recording import open_recording


def read_ledger(path: Path, at: str = "end") -> Ledger:
    with open_recording(path) as recording:
        found = make_ledgers(read_timeline(recording, at=at))
    return next(each for each in found if each.device == 0)


def size(ledger: Ledger, key: str) -> int:
    line = ledger.find(key)
    assert line is not None, key
    assert line.bytes is not None, f"{key}: {line.reason}"
    return line.bytes


def assert_adds_up(ledger: Ledger) -> None:
    used = ledger.find("used")
    assert used is not None
    assert sum(line.bytes or 0 for line in used.leaves) == used.bytes
    total = sum(line.bytes or 0 for line in ledger.total.leaves)
    assert total == ledger.total.bytes
