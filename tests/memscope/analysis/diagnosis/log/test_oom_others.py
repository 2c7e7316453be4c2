"""Ranks that ran out for another reason get their own line of help, with what they lack."""

from __future__ import annotations

import io

import pytest

from memscope.analysis.diagnosis.explanation import Advice
from memscope.analysis.diagnosis.log.explain import explain_log
from memscope.interop.oom_log.reader import read_log

MESSAGE = (
    "[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU "
    "{rank} has a total capacity of 79.00 GiB of which 1.00 GiB is free. Including non-PyTorch "
    "memory, this process has 78.00 GiB memory in use. Of the allocated memory {allocated}.00 GiB "
    "is allocated by PyTorch, and {cached} GiB is reserved by PyTorch but unallocated."
)
FRAGMENTED = {"allocated": 73, "cached": "4.00"}
SHORT = {"allocated": 76, "cached": "0.25"}
SHORTER = {"allocated": 76, "cached": "0.50"}


def help_of(*kinds: dict[str, object]) -> tuple[Advice, ...]:
    log = "\n".join(MESSAGE.format(rank=rank, **kind) for rank, kind in enumerate(kinds))
    return explain_log(read_log(io.BytesIO(log.encode()))).help


def test_ranks_that_the_help_does_not_help_are_named_with_what_they_lack() -> None:
    last = help_of(FRAGMENTED, SHORT, FRAGMENTED, SHORTER)[-1]
    assert last.setting.startswith("rank 1, rank 3: smaller batch")
    assert last.reason == "shortage, up to 768.00 MiB missing: nothing above helps"
    assert last.frees_bytes == 768 * 2**20


def test_shortage_first_leaves_the_fragmented_rank_its_own_help() -> None:
    last = help_of(SHORT, FRAGMENTED)[-1]
    assert "rank 1: " in last.setting
    assert "expandable_segments" in last.setting
    assert last.reason.startswith("fragmentation: ")


@pytest.mark.parametrize("kinds", [(FRAGMENTED,), (FRAGMENTED, FRAGMENTED), (SHORT, SHORTER)])
def test_ranks_of_one_reason_share_the_help(kinds: tuple[dict[str, object], ...]) -> None:
    assert not [each for each in help_of(*kinds) if each.setting.startswith("rank")]


def test_many_ranks_are_counted() -> None:
    last = help_of(FRAGMENTED, *(SHORT for _ in range(9)))[-1]
    assert last.setting.startswith("rank 1, rank 2, rank 3, rank 4 and 5 more: ")
