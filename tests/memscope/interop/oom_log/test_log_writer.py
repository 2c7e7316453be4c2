"""Who wrote a line, by what launchers and servers put before it, and whose message it repeats."""

from __future__ import annotations

import pytest

from memscope.interop.oom_log.lines import prefix_of
from memscope.interop.oom_log.repeats import LogRepeats
from memscope.interop.oom_log.writer import Writer, find_writer

ENGINE = Writer("", ("DP0",))
WORKER = Writer("", ("DP0", "TP1"))
RANK_3, RANK_4 = Writer("", ("rank 3",)), Writer("", ("rank 4",))


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ("[rank3]: ", "rank 3"),
        ("[default3]:[rank11]: ", "rank 11"),
        ("[default3]: ", "rank 3"),
        ("[1,5]<stderr>: ", "rank 5"),
        ("12: ", "rank 12"),
        ("[pod/trainer-0/main] [rank3]: ", "trainer-0, rank 3"),
        ("[pod/trainer-0/main] 2026-04-19T12:21:55.609123456Z [rank3]: ", "trainer-0, rank 3"),
        ("trainer-2  | [rank1]: ", "trainer-2, rank 1"),
        ("[pod/team-a/trainer-0/main] [rank3]: ", "team-a/trainer-0, rank 3"),
        ("[host/worker-1] [rank3]: ", "worker-1, rank 3"),
        ("[pod/launcher/main] [host/worker-1] [rank3]: ", "launcher, rank 3"),
        ("[2026-04-19 12:21:55 DP1 TP3] ", "DP1 TP3"),
        ("(Worker_DP0_TP1_EP1 pid=7) ERROR 07-08 01:30:59 [x.py:387] ", "DP0 TP1 EP1"),
        ("(VllmWorker rank=1 pid=123) ERROR 07-08 01:30:59 [x.py:387] ", "rank 1"),
        ("(EngineCore_DP0 pid=1094) ERROR 07-08 01:30:59 [core.py:387] ", "DP0"),
        ("(RayTrainWorker pid=41, ip=10.0.0.7) ", "pid 41 at 10.0.0.7"),
        ("(APIServer pid=1) ", ""),
        ("2026-04-19 12:21:55.609 | INFO     | ", ""),
        ("\x1b[31m[rank2]: \x1b[0m", "rank 2"),
        ("", ""),
    ],
)
def test_prefixes_say_who_wrote_a_line(prefix: str, name: str) -> None:
    assert find_writer(prefix_of(f"{prefix}torch.OutOfMemoryError: CUDA out")).name == name


def repeats(*writers: Writer) -> list[bool]:
    log = LogRepeats()
    return [log.is_repeat("message", writer) for writer in writers]


@pytest.mark.parametrize(
    ("writers", "expected"),
    [
        ((RANK_3, RANK_3), [False, True]),
        ((RANK_3, Writer()), [False, True]),
        ((Writer(), RANK_3), [False, True]),
        ((Writer(), RANK_3, RANK_4, RANK_3), [False, True, False, True]),
        ((RANK_3, RANK_4, Writer()), [False, False, True]),
        ((WORKER, ENGINE, Writer()), [False, True, True]),
        ((Writer("pod-0"), Writer("pod-1")), [False, False]),
        ((Writer("pod-0", RANK_3.ranks), RANK_3), [False, True]),
        ((Writer("pod-0", RANK_3.ranks), Writer("pod-1", RANK_3.ranks)), [False, False]),
    ],
)
def test_what_launchers_and_engines_say_again_counts_once(
    writers: tuple[Writer, ...], expected: list[bool]
) -> None:
    assert repeats(*writers) == expected


def test_other_messages_are_no_repeats() -> None:
    log = LogRepeats()
    assert not log.is_repeat("one", RANK_3)
    assert not log.is_repeat("two", RANK_3)
