"""`memscope diff` says first whether two recordings were made alike."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest

from memscope.format.header import new_header
from tests.memscope.analysis.build import Event, event, fact
from tests.memscope.cli.recordings import write_recording
from tests.memscope.cli.verb_run import Run
from tests.memscope.fake_allocator import MIB, FakeAllocator

VERSIONS = {"torch": "2.9.0", "driver": "570.1"}
ALLOCATOR = {"settings": "", "backend": "native"}
SAID = [
    fact("policy", {"policy": "past", "keep": 4, "prefetch": True}),
    fact("model", {"name": "tiny", "weights_bytes": 1 << 30}),
    fact("versions", VERSIONS),
    fact("torch.allocator", ALLOCATOR),
    fact("device.0", {"name": "NVIDIA H200", "kind": "cuda"}),
]


def record(path: Path, *rows: Event, command: Sequence[str] = ("train.py",)) -> Path:
    header = {**new_header(), "command": list(command)}
    return write_recording(path, [*rows, event(9, 5)], header=header)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return record(tmp_path / "before.mscope", *SAID)


def head(out: str) -> list[str]:
    """The lines about settings: those of the second block."""
    return out.split("\n\n")[1].splitlines()


def test_what_changed_stands_before_the_metrics(
    memscope: Run, before: Path, tmp_path: Path
) -> None:
    changed = [fact("policy", {"policy": "pinned", "keep": 12, "prefetch": False})]
    changed.append(fact("torch.allocator", {**ALLOCATOR, "settings": "expandable_segments:True"}))
    after = record(tmp_path / "after.mscope", *SAID, *changed)
    out = memscope("diff", before, after).out
    lines = head(out)
    assert lines[0] == "settings and environment: 4 differ"
    assert [line.split()[0] for line in lines[1:5]] == [
        "PYTORCH_CUDA_ALLOC_CONF",
        "policy",
        "keep",
        "prefetch",
    ]
    assert lines[1].endswith("not set → expandable_segments:True")
    assert lines[2].endswith("past → pinned")
    assert lines[4].endswith("yes → no")
    assert out.index("settings and environment") < out.index("\nmetrics")


def test_alike_names_what_was_compared(memscope: Run, before: Path) -> None:
    lines = head(memscope("diff", before, before).out)
    assert lines[0] == "settings and environment: no setting that both recordings have differs"
    text = " ".join(lines[1:])
    assert all(name in text for name in ("torch", "driver", "policy", "keep", "model", "command"))
    assert "recorded in neither" not in text


def test_nothing_recorded_is_not_called_alike(memscope: Run, tmp_path: Path) -> None:
    bare = record(tmp_path / "bare.mscope")
    lines = head(memscope("diff", bare, bare).out)
    assert lines[1].split(":")[1].split(", ") == [" command", "host"]
    assert lines[2].strip() == (
        "recorded in neither: model, device, torch, driver, PYTORCH_CUDA_ALLOC_CONF"
    )


def test_one_side_alone_is_said_to_be_unknown(memscope: Run, before: Path, tmp_path: Path) -> None:
    bare = record(tmp_path / "bare.mscope")
    lines = head(memscope("diff", before, bare).out)
    assert lines[0].endswith("that both recordings have differs, 10 recorded in only one")
    rows = [line.split() for line in lines[1:]]
    assert ["torch", "2.9.0", "→", "not", "recorded"] in rows
    turned = head(memscope("diff", bare, before).out)
    assert "not recorded → tiny" in "".join(turned)


def test_json_has_each_setting(memscope: Run, before: Path, tmp_path: Path) -> None:
    after = record(tmp_path / "after.mscope", *SAID, fact("versions", {"torch": "2.10.0"}))
    found = json.loads(memscope("diff", before, after, "--json").out)
    settings = found["settings"]
    assert list(found).index("settings") < list(found).index("metrics")
    assert settings["torch"] == {
        "before": "2.9.0",
        "after": "2.10.0",
        "differs": True,
        "reason": None,
    }
    assert settings["driver"] == {
        "before": "570.1",
        "after": None,
        "differs": None,
        "reason": "the second recording does not have it",
    }
    assert (settings["prefetch"]["before"], settings["prefetch"]["differs"]) == (True, False)


def test_long_commands_are_shown_where_they_part(memscope: Run, tmp_path: Path) -> None:
    words = ["train.py", *(f"--option-{number}=yes" for number in range(20))]
    old = record(tmp_path / "old.mscope", command=[*words, "--batch", "8", "--seed", "1"])
    new = record(tmp_path / "new.mscope", command=[*words, "--batch", "16", "--seed", "1"])
    (line,) = (each for each in head(memscope("diff", old, new).out) if "command" in each)
    assert line == "  command  … --batch 8 --seed 1 → … --batch 16 --seed 1"


def test_sizes_that_round_alike_are_told_apart(memscope: Run, tmp_path: Path) -> None:
    sizes = (1 << 34, (1 << 34) + 1)
    old, new = (
        record(tmp_path / f"{size}.mscope", fact("cgroup", {"limit_bytes": size})) for size in sizes
    )
    assert "17179869184 → 17179869185" in memscope("diff", old, new).out


def test_many_are_cut_short_and_obey_nothing(memscope: Run, tmp_path: Path) -> None:
    old, new = (
        record(
            tmp_path / f"{value}.mscope",
            *(fact(f"a\x1b[2J{number}", value * 500) for number in range(60)),
        )
        for value in "xy"
    )
    out = memscope("diff", old, new).out
    assert "\x1b" not in out
    assert "50 more in --json" in out
    assert max(map(len, head(out))) < 250
    assert len(head(memscope("diff", old, old).out)) < 12


def test_snapshots_are_not_said_to_be_alike(memscope: Run, tmp_path: Path) -> None:
    allocator = FakeAllocator()
    allocator.alloc(8 * MIB, by="weights")
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(allocator.snapshot()))
    assert "settings" not in memscope("diff", path, path).out
    assert json.loads(memscope("diff", path, path, "--json").out)["settings"] is None
