"""The settings of one test: from its markers, the nearest first, then from the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memscope.errors import MemscopeError
from memscope.pytest_plugin.options import Settings
from memscope.pytest_plugin.source_lines import marker_place

if TYPE_CHECKING:
    import pytest

    from memscope.analysis.limits.limits import Limit

MARKER = "memscope"
EXAMPLE = '@pytest.mark.memscope("memory.peak_bytes <= 2 GiB")'


@dataclass(frozen=True, slots=True)
class ItemSettings:
    """How one test is measured.

    ``limits`` are its own: the test is skipped if one cannot be measured. ``shared`` are those of
    the session. ``baseline`` None means: compare if the baseline file has an entry for the test.
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


def read_markers(item: pytest.Item, settings: Settings) -> ItemSettings:
    """The settings from the markers of ``item``. Raises MemscopeError that names the line."""
    levels = list(_levels(item))
    if not levels:
        return ItemSettings(shared=settings.limits)
    from memscope.analysis.limits.limits import override

    arguments = _read_arguments(item, levels)
    limits: tuple[Limit, ...] = ()
    for markers in levels:
        limits = override(limits, _read_limits(item, markers))
    if not arguments.get("fixtures"):
        arguments = {"repeat": settings.repeat, "warmup": settings.warmup} | arguments
    shared = override(limits, settings.limits)[len(limits) :]
    measured = ItemSettings(limits, shared, is_marked=True, **arguments)
    _check(item, measured, settings)
    return measured


def _levels(item: pytest.Item) -> Iterator[list[pytest.Mark]]:
    """The markers of parameters, then of the function, its class, its module and so on."""
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

    limits: list[Limit] = []
    for marker in markers:
        for text in marker.args:
            if not isinstance(text, str):
                raise _wrong(item, repr(text), f"{text!r} is not a string.", f"Write {EXAMPLE}.")
            try:
                limits.append(parse_limit(text))
            except MemscopeError as error:
                raise _wrong(item, text, error.problem, error.next_step) from None
    return tuple(limits)


def _read_arguments(item: pytest.Item, levels: list[list[pytest.Mark]]) -> dict[str, Any]:
    """Keyword arguments of the markers; the nearest marker that has one decides."""
    arguments: dict[str, Any] = {}
    for marker in (marker for level in levels for marker in level):
        for name, value in marker.kwargs.items():
            if name not in _ARGUMENTS:
                known = ", ".join(_ARGUMENTS)
                raise _wrong(item, name, f"the marker takes no {name}.", f"It takes {known}.")
            read, wanted = _ARGUMENTS[name]
            try:
                arguments.setdefault(name, read(value))
            except (TypeError, ValueError):
                raise _wrong(
                    item, name, f"{name}={value!r} is not {wanted}.", f"Write {name}={wanted}."
                ) from None
    return arguments


def _check(item: pytest.Item, measured: ItemSettings, settings: Settings) -> None:
    if measured.fixtures and measured.runs > 1:
        raise _wrong(
            item,
            "fixtures",
            "fixtures=True cannot be combined with repeat or warmup: fixtures run only once.",
            "Remove one of them.",
        )
    is_compared = settings.baseline is not None or settings.new_baseline is not None
    if measured.baseline and not is_compared:
        raise _wrong(
            item,
            "baseline",
            "baseline=True needs a baseline file.",
            'Name one: --memscope-baseline FILE, or baseline = "FILE" in [tool.memscope].',
        )
    if not (measured.limits or measured.shared or (is_compared and measured.baseline is not False)):
        raise _wrong(item, MARKER, "the marker names no limit.", f"Write {EXAMPLE}.")


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


_ARGUMENTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "repeat": (_count(1), "a whole number from 1"),
    "warmup": (_count(0), "a whole number from 0"),
    "fixtures": (_flag, "True or False"),
    "baseline": (_flag, "True or False"),
    "tolerance": (_share, 'a share like "5%"'),
}
