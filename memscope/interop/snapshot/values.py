"""Columns out of a snapshot's rows: each value is checked before it becomes a number."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from memscope.errors import MemscopeError
from memscope.interop.snapshot.plain_data import NEXT_STEP

Row = dict[str, Any]
Numbers = npt.NDArray[np.int64]
PoolId = tuple[int, int]
T = TypeVar("T", bound=Hashable)

MAX_BYTES = 1 << 50  # no device holds a pebibyte; sums of sizes stay far below 2^63
MAX_ADDRESS = 1 << 63
MAX_FRAMES = 512
MAX_TEXT = 1024
DEFAULT_POOL: PoolId = (0, 0)


def damaged(problem: str) -> MemscopeError:
    """The refusal of a file that says what cannot be."""
    return MemscopeError(f"{problem}.", NEXT_STEP)


class Budget:
    """How much may be walked: a list of N values takes at least N bytes of its file.

    More is one list that stands in many places.
    """

    def __init__(self, size: int) -> None:
        self.left = size

    def spend(self, count: int) -> None:
        """Raises MemscopeError where the file cannot hold what it unfolds to."""
        self.left -= count
        if self.left < 0:
            raise damaged("unfolds to more than it holds: it is damaged or made to do harm")


@dataclass(slots=True)
class Names(Generic[T]):
    """Values as small numbers, in the order in which they were first met."""

    first: T
    _codes: dict[T, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._codes[self.first] = 0

    def code(self, value: T) -> int:
        """The number of ``value``."""
        return self._codes.setdefault(value, len(self._codes))

    @property
    def values(self) -> tuple[T, ...]:
        """All values, by number."""
        return tuple(self._codes)


@dataclass(slots=True)
class Stacks:
    """Call stacks without repetition: texts of frames, and stacks as numbers of frames.

    A stack's first frame is the innermost.
    """

    frames: list[str] = field(default_factory=list)
    stacks: list[tuple[int, ...]] = field(default_factory=list)
    _frame_codes: dict[str, int] = field(default_factory=dict)
    _stack_codes: dict[tuple[int, ...], int] = field(default_factory=dict)
    _frames_seen: dict[int, int] = field(default_factory=dict)
    _stacks_seen: dict[tuple[int, ...], int] = field(default_factory=dict)

    def code(self, value: list[Any]) -> int:
        """The number of the stack ``value``, a list of frame dicts; −1 for an empty one.

        Objects are known by their identity: they must stay alive while stacks are read.
        """
        if not value:
            return -1
        objects = tuple(map(id, value if len(value) <= MAX_FRAMES else value[:MAX_FRAMES]))
        known = self._stacks_seen.get(objects)
        if known is None:
            known = self._stacks_seen[objects] = self._read(value)
        return known

    def lines(self, stack: int) -> tuple[str, ...]:
        """Frames of a stack as text, the innermost first."""
        return tuple(self.frames[frame] for frame in self.stacks[stack]) if stack >= 0 else ()

    def _read(self, value: list[Any]) -> int:
        codes = tuple(self._frame(frame) for frame in value[:MAX_FRAMES])
        known = self._stack_codes.get(codes)
        if known is None:
            known = self._stack_codes[codes] = len(self.stacks)
            self.stacks.append(codes)
        return known

    def _frame(self, frame: Any) -> int:
        known = self._frames_seen.get(id(frame))
        if known is None:
            text = frame_text(frame)
            known = self._frame_codes.setdefault(text, len(self.frames))
            if known == len(self.frames):
                self.frames.append(text)
            self._frames_seen[id(frame)] = known
        return known


def printable(text: str) -> str:
    """``text`` without characters that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "\ufffd" for each in text)


def frame_text(frame: Any) -> str:
    """A frame as "name (file:line)". Raises MemscopeError."""
    if type(frame) is dict:
        name, file, line = frame.get("name"), frame.get("filename"), frame.get("line")
        if type(name) is str and type(file) is str and type(line) is int and abs(line) < 1 << 63:
            where = f"{file[-MAX_TEXT:]}:{line}" if file else "unknown"
            return printable(f"{name[:MAX_TEXT]} ({where})")
    raise damaged("has a call stack with a frame that is none")


def as_list(value: Any, name: str) -> list[Any]:
    """``value``, a list. Raises MemscopeError."""
    if type(value) is not list:
        raise damaged(f"has no list where {name} should be")
    return value


def check_dicts(rows: Sequence[Any], name: str, budget: Budget | None = None) -> None:
    """Raises MemscopeError where a row is no dict."""
    if budget is not None:
        budget.spend(len(rows))
    if set(map(type, rows)) - {dict}:
        raise damaged(f"has a {name} that is no dict")


def numbers(
    rows: Sequence[Row],
    key: str,
    name: str,
    missing: int | None = None,
    *,
    is_address: bool = False,
    most: int = MAX_BYTES,
) -> Numbers:
    """Column ``key``: whole numbers from 0 up; ``missing`` where a row has none."""
    try:
        values: list[Any] = list(map(itemgetter(key), rows))
    except KeyError:
        values = [row.get(key, missing) for row in rows]
    if set(map(type, values)) - {int}:
        raise damaged(f"has a {name} whose {key} is missing or no whole number")
    try:
        column = np.array(values, dtype=np.int64)
    except OverflowError:
        raise damaged(f"has a {name} whose {key} cannot be") from None
    least, limit = min(0, missing or 0), MAX_ADDRESS if is_address else most
    if len(column) and (column.min() < least or column.max() >= limit):
        raise damaged(f"has a {name} whose {key} cannot be")
    if not is_address and float(column.sum(dtype=np.float64)) >= 1 << 62:
        raise damaged(f"has {name}s whose {key} cannot be")
    return column


def texts(rows: Sequence[Row], key: str, name: str, missing: str | None = None) -> list[str]:
    """Column ``key`` of texts. Raises MemscopeError."""
    values: list[Any] = [row.get(key, missing) for row in rows]
    if set(map(type, values)) - {str}:
        raise damaged(f"has a {name} whose {key} is no text")
    return values


def pool_ids(rows: Sequence[Row], key: str, pools: Names[PoolId], missing: int = 0) -> Numbers:
    """Column of memory pools as numbers into ``pools``; ``missing`` where a row has none."""
    values: list[Any] = [row.get(key) for row in rows]
    place = [number for number, value in enumerate(values) if value is not None]
    column = np.full(len(values), missing, dtype=np.int64)
    if not place:
        return column
    given = values if len(place) == len(values) else [values[number] for number in place]
    if given.count(DEFAULT_POOL) == len(given):
        column[place] = pools.code(DEFAULT_POOL)
        return column
    if set(map(type, given)) - {tuple, list} or set(map(len, given)) != {2}:
        raise damaged("has a memory pool whose id is no pair of numbers")
    pairs = np.stack([_id_column([value[part] for value in given]) for part in (0, 1)], axis=1)
    distinct, row = np.unique(pairs, axis=0, return_inverse=True)
    codes = [pools.code((int(first), int(second))) for first, second in distinct]
    column[place] = np.array(codes, dtype=np.int64)[row.reshape(-1)]
    return column


def stack_ids(values: list[Any], stacks: Stacks, budget: Budget) -> Numbers:
    """Call stacks as numbers into ``stacks``; each list is walked once, however often it stands."""
    if set(map(type, values)) - {list, type(None)}:
        raise damaged("has a call stack that is no list of frames")
    objects = np.fromiter(map(id, values), dtype=np.int64, count=len(values))
    _, first, row = np.unique(objects, return_index=True, return_inverse=True)
    distinct = [values[place] or [] for place in first.tolist()]
    budget.spend(sum(map(len, distinct)))
    codes = np.fromiter(map(stacks.code, distinct), dtype=np.int64, count=len(distinct))
    return codes[row.reshape(-1)]


def label_ids(values: list[Any], labels: Names[str]) -> Numbers:
    """Texts as numbers into ``labels``; 0 where a value is empty or no text."""
    plain = [value if type(value) is str else "" for value in values]
    known = {text: labels.code(printable(text[:MAX_TEXT])) for text in dict.fromkeys(plain)}
    return np.array(list(map(known.__getitem__, plain)), dtype=np.int64)


def _id_column(values: list[Any]) -> Numbers:
    if set(map(type, values)) - {int} or min(values) < 0 or max(values) >= MAX_ADDRESS:
        raise damaged("has a memory pool whose id is no pair of numbers")
    return np.array(values, dtype=np.int64)
