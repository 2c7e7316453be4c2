"""Where messages about memory begin in a text without white space."""

from __future__ import annotations

from memscope.interop import oom_formats, server_refusals

# By kind, those whose text says more than that memory ran out.
STRONG = {**oom_formats.NEEDLES, **server_refusals.NEEDLES}


def earliest(
    needles: dict[str, tuple[str, ...]], text: str, start: int = 0
) -> tuple[str, int] | None:
    """Kind and place of the first message that begins in ``text`` at ``start`` or later."""
    nearest: tuple[str, int] | None = None
    for kind, texts in needles.items():
        for needle in texts:
            begin = _begin_of(kind, needle, text, start)
            if begin is not None and (nearest is None or begin < nearest[1]):
                nearest = kind, begin
    return nearest


def _begin_of(kind: str, needle: str, text: str, start: int) -> int | None:
    place = text.find(needle, start)
    while place >= 0:
        is_refusal = kind in server_refusals.NEEDLES
        start_of = server_refusals.start_of if is_refusal else oom_formats.start_of
        begin = start_of(kind, text, place)
        if begin is not None and begin >= start:
            return begin
        place = text.find(needle, place + 1)
    return None
