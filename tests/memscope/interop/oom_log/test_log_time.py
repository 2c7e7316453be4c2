"""When lines say that they were written, and which of these can be compared."""

from __future__ import annotations

import pytest

from memscope.interop.oom_log.lines import prefix_of
from memscope.interop.oom_log.time import Stamp, are_comparable, read_stamp

MESSAGE = "torch.OutOfMemoryError: CUDA out"
DAY_NS = 86_400 * 10**9


@pytest.mark.parametrize(
    ("prefix", "form", "hundredths"),
    [
        ("2026-01-02T03:04:05.67Z ", "moment", 67),
        ("2026-01-02T03:04:05.670000000Z stderr F ", "moment", 67),
        ("2026-01-02T05:04:05.67+02:00 ", "moment", 67),
        ("[pod/trainer-0/main] 2026-01-02T03:04:05.67Z [rank3]: ", "moment", 67),
        ("2026-01-02 03:04:05,670 - INFO - ", "date", 67),
        ("[2026-01-02 03:04:05 DP1 TP3] ", "date", 0),
        ("[rank3]: 2026-01-02 03:04:05.67 | ERROR | ", "date", 67),
    ],
)
def test_moments_with_a_year_are_read(prefix: str, form: str, hundredths: int) -> None:
    stamp = read_stamp(prefix_of(prefix + MESSAGE))
    assert stamp == Stamp(form, 1_767_323_045 * 10**9 + hundredths * 10**7)


@pytest.mark.parametrize(
    ("prefix", "form"),
    [
        ("E0102 03:04:05.678901 12345 x.py:9] ", "glog"),
        ("I0102 03:04:05.678901   7 a/b.cc:9] [rank3]: ", "glog"),
        ("[rank3]:[E102 03:04:05.678901 x.cpp:9] ", None),
        ("[rank3]:[E0102 03:04:05.678901 x.cpp:9] ", "glog"),
        ("ERROR 01-02 03:04:05 [core.py:387] ", "day"),
    ],
)
def test_days_without_a_year_are_read(prefix: str, form: str | None) -> None:
    stamp = read_stamp(prefix_of(prefix + MESSAGE))
    assert (stamp and stamp.form) == form
    if stamp is not None and form == "glog":
        assert stamp.t_ns % 10**9 == 678_901_000


@pytest.mark.parametrize(
    "prefix",
    ["", "[rank3]: ", "2026-13-41 03:04:05 ", "2026-01-02 99:99:99 ", "E9999 99:99:99.9 1 x.py:9] ",
     "2026-01-02T03:04:05+99:99 ", "0000-00-00 00:00:00 ", "9" * 400],
)  # fmt: skip
def test_what_is_no_moment_is_none(prefix: str) -> None:
    assert read_stamp(prefix_of(prefix + MESSAGE)) is None
    assert read_stamp(prefix) is None


def test_times_are_compared_within_one_form() -> None:
    one, two = Stamp("moment", 1), Stamp("moment", 2)
    assert are_comparable([one, two])
    assert not are_comparable([one, None])
    assert not are_comparable([one, Stamp("date", 2)])
    assert not are_comparable([])
    assert are_comparable([Stamp("glog", 0), Stamp("glog", DAY_NS)])
    assert not are_comparable([Stamp("glog", 0), Stamp("glog", 364 * DAY_NS)])  # over New Year
