"""Recordings of released formats are read for ever: each gives the values that it gave then.

A folder holds one format. Each recording has the values beside it that the release itself read.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memscope.analysis.summary.summary import summarize
from memscope.analysis.timeline.read import read_timeline
from memscope.reader.recording import Recording
from tests.paths import DATA

FORMATS = DATA / "formats"
RECORDINGS = sorted(FORMATS.glob("*/*.mscope"))


def test_the_first_format_is_kept() -> None:
    names = {path.relative_to(FORMATS).as_posix() for path in RECORDINGS}
    assert names >= {"1.0/decode.mscope", "1.0/killed.mscope", "1.0/training.mscope"}


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_values_are_those_of_the_release_that_wrote_them(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text())
    with Recording(path) as recording:
        written = recording.header.format
        summary = summarize(read_timeline(recording), recording.state).to_json()
    assert ".".join(map(str, written)) == path.parent.name
    assert (summary["state"], summary["events"]) == (expected["state"], expected["events"])
    values = {name: metric["value"] for name, metric in summary["metrics"].items()}
    assert {name: values[name] for name in expected["metrics"]} == expected["metrics"]
