"""When a line of a log was written, by its prefix."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

_FRACTION = r"(?:[.,](?P<fraction>\d{1,9}))?"
_DATE = re.compile(
    r"(?<!\d)(?P<date>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d:\d\d)"
    rf"{_FRACTION}(?P<zone>Z|[+-]\d\d:?\d\d(?!\d))?"
)
# glog, absl and torch's own: "E0102 03:04:05.678"; vLLM: "01-02 03:04:05".
_DAY = re.compile(
    r"(?:(?<![\w])[DIWEF](?P<short>\d{4})|(?<![\d-])(?P<day>\d\d-\d\d)) (?P<time>\d\d:\d\d:\d\d)"
    rf"{_FRACTION}"
)
# Without a year December may be before January: so far apart no one can tell.
_HALF_A_YEAR_NS = 182 * 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class Stamp:
    """A moment. Only stamps of the same ``form`` can be compared."""

    form: str
    t_ns: int


def read_stamp(prefix: str) -> Stamp | None:
    """The first time in ``prefix``, None if there is none."""
    if match := _DATE.search(prefix):
        form = "date" if match["zone"] is None else "moment"
        zone = (match["zone"] or "Z").replace("Z", "+00:00")
        return _stamp(form, f"{match['date']}T{match['time']}{zone}", match["fraction"])
    if match := _DAY.search(prefix):
        day = match["day"] or f"{match['short'][:2]}-{match['short'][2:]}"
        form = "day" if match["day"] else "glog"
        # A leap year, so that every day is there.
        return _stamp(form, f"2000-{day}T{match['time']}+00:00", match["fraction"])
    return None


def are_comparable(stamps: Iterable[Stamp | None]) -> bool:
    """Whether all stamps exist and have the same form, so that the smallest is the earliest."""
    known = [*stamps]
    times = [stamp.t_ns for stamp in known if stamp is not None]
    forms = {stamp.form for stamp in known if stamp is not None}
    if len(times) < len(known) or len(forms) != 1:
        return False
    return not forms & {"day", "glog"} or max(times) - min(times) < _HALF_A_YEAR_NS


def _stamp(form: str, text: str, fraction: str | None) -> Stamp | None:
    try:
        moment = datetime.fromisoformat(text)
        seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    except (ValueError, OverflowError):  # no such day, hour or zone
        return None
    return Stamp(form, int(seconds) * 10**9 + int((fraction or "").ljust(9, "0")))
