"""`memscope explain` on logs of several processes, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from tests.memscope.cli.verb_run import Run

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {0} has a total "
    "capacity of 79.18 GiB of which {1}.00 MiB is free. Including non-PyTorch memory, this process "
    "has 78.18 GiB memory in use. Of the allocated memory 76.00 GiB is allocated by PyTorch, and "
    "100.00 MiB is reserved by PyTorch but unallocated.\n"
)


def write_log(folder: Path) -> Path:
    path = folder / "job.log"
    lines = [f"[rank{rank}]: {MESSAGE.format(rank, 100 + rank)}" for rank in range(3)]
    path.write_text("".join(lines) + MESSAGE.format(2, 102))
    return path


def test_each_rank_has_a_line_and_the_first_is_explained(memscope: Run, tmp_path: Path) -> None:
    outcome = memscope("explain", write_log(tmp_path))
    assert outcome.code == 0
    assert outcome.out.startswith("A real shortage: 2.00 GiB was requested on GPU 0 (79.18 GiB).")
    lines = outcome.out.splitlines()
    start = lines.index("all failures, the one above first") + 1
    assert [line.split()[1] for line in lines[start : start + 3]] == ["0", "1", "2"]
    assert lines[start + 3] == ""


def test_json_has_the_others(memscope: Run, tmp_path: Path) -> None:
    outcome = memscope("explain", write_log(tmp_path), "--json")
    found = json.loads(outcome.out)
    assert outcome.code == 0
    assert found["process"] == "rank 0"
    assert [each["process"] for each in found["others"]] == ["rank 1", "rank 2"]
    assert [each["free_bytes"] for each in found["others"]] == [101 << 20, 102 << 20]
