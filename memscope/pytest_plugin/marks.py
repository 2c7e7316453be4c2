"""What is asked of one test: by its markers, from the nearest outward, then by the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memscope.errors import MemscopeError
from memscope.pytest_plugin.options import Settings
from memscope.pytest_plugin.places import marker_place

if TYPE_CHECKING:
    import pytest

    from memscope.analysis.limits.limits import Limit

MARKER = "memscope"
EXAMPLE = '@pytest.mark.memscope("memory.peak_bytes <= 2 GiB")'


@dataclass(frozen=True, slots=True)
class Asked:
    """What one test is measured for.

    ``limits`` are its own: one that cannot be measured skips the test. ``shared`` are those of
    the session. ``baseline`` None: compare with what a baseline file happens to have of the test.
    """

    limits: tuple[Limit, ...] = ()
    shared: tuple[Limit, ...] = ()
    is_marked: bool = False
    repeat: int = 1
    warmup: int = 0
    fixtures: bool = False
    baseline: bool | None = None
    tolerance: float | None = None

    @property
    def runs(self) -> int:
        """How often the body runs."""
        return self.warmup + self.repeat


def read_markers(item: pytest.Item, settings: Settings) -> Asked:
    """What the markers of ``item`` ask. Raises MemscopeError that names the line."""
    levels = list(_levels(item))
    if not levels:
        return Asked(shared=settings.limits)
    from memscope.analysis.limits.limits import override

    words = _read_words(item, levels)
    limits: tuple[Limit, ...] = ()
    for markers in levels:
        limits = override(limits, _read_limits(item, markers))
    if not words.get("fixtures"):
        words = {"repeat": settings.repeat, "warmup": settings.warmup} | words
    asked = Asked(limits, _left_of(settings.limits, limits), is_marked=True, **words)
    _check(item, asked, settings)
    return asked


def _levels(item: pytest.Item) -> Iterator[list[pytest.Mark]]:
    """Markers by where they stand: parameters, the function, its class, its module ..."""
    callspec = getattr(item, "callspec", None)
    of_parameters = [mark for mark in getattr(callspec, "marks", ()) if mark.name == MARKER]
    own = [mark for mark in item.own_markers if mark.name == MARKER]
    of_function = [mark for mark in own if not any(mark is other for other in of_parameters)]
    outer = [
        [mark for mark in node.own_markers if mark.name == MARKER]
        for node in reversed(item.listchain()[:-1])
    ]
    yield from filter(None, (of_parameters, of_function, *outer))


def _read_limits(item: pytest.Item, markers: list[pytest.Mark]) -> tuple[Limit, ...]:
    from memscope.analysis.limits.limits import parse_limit

    found: list[Limit] = []
    for marker in markers:
        for text in marker.args:
            if not isinstance(text, str):
                raise _wrong(item, repr(text), f"{text!r} is not a text.", f"Write {EXAMPLE}.")
            try:
                found.append(parse_limit(text))
            except MemscopeError as error:
                raise _wrong(item, text, error.problem, error.next_step) from None
    return tuple(found)


def _read_words(item: pytest.Item, levels: list[list[pytest.Mark]]) -> dict[str, Any]:
    """Keywords of the markers; the nearest one that has a keyword decides."""
    words: dict[str, Any] = {}
    for marker in (marker for level in levels for marker in level):
        for word, value in marker.kwargs.items():
            if word not in _WORDS:
                known = ", ".join(_WORDS)
                raise _wrong(item, word, f"the marker takes no {word}.", f"It takes {known}.")
            read, wanted = _WORDS[word]
            try:
                words.setdefault(word, read(value))
            except (TypeError, ValueError):
                raise _wrong(
                    item, word, f"{word}={value!r} is not {wanted}.", f"Write {word}={wanted}."
                ) from None
    return words


def _check(item: pytest.Item, asked: Asked, settings: Settings) -> None:
    if asked.fixtures and asked.runs > 1:
        raise _wrong(
            item,
            "fixtures",
            "fixtures=True does not go with repeat or warmup: fixtures are made once.",
            "Leave one of them out.",
        )
    is_compared = settings.baseline is not None or settings.new_baseline is not None
    if asked.baseline and not is_compared:
        raise _wrong(
            item,
            "baseline",
            "baseline=True, and no baseline file is named.",
            'Name one: --memscope-baseline FILE, or baseline = "FILE" in [tool.memscope].',
        )
    if not (asked.limits or asked.shared or (is_compared and asked.baseline is not False)):
        raise _wrong(item, MARKER, "the marker names no limit.", f"Write {EXAMPLE}.")


def _left_of(shared: tuple[Limit, ...], own: tuple[Limit, ...]) -> tuple[Limit, ...]:
    from memscope.analysis.limits.limits import override

    return override(own, shared)[len(own) :]


def _wrong(item: pytest.Item, text: str, problem: str, next_step: str) -> MemscopeError:
    return MemscopeError(f"{marker_place(item, text)}: {problem}", next_step)


def _count(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(value)
        return value

    return read


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _share(value: Any) -> float:
    from memscope.configuration import parse_tolerance

    try:
        return parse_tolerance(str(value))
    except MemscopeError as error:
        raise ValueError(value) from error


_WORDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "repeat": (_count(1), "a number from 1"),
    "warmup": (_count(0), "a number from 0"),
    "fixtures": (_flag, "True or False"),
    "baseline": (_flag, "True or False"),
    "tolerance": (_share, 'a share such as "5%"'),
}
