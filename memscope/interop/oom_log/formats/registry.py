"""The list of formats: all programs whose messages about memory are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias

from memscope.interop.oom_log.formats import (
    kubernetes,
    linux,
    llama_cpp,
    onnxruntime,
    ray,
    sglang,
    slurm,
    torch,
    vllm,
    xla,
)
from memscope.interop.oom_log.formats.message import Format, Message, Needles

# If two messages begin at one place, the format that comes first here reads it.
FORMATS: tuple[Format, ...] = (
    torch.FORMAT,
    xla.FORMAT,
    vllm.FORMAT,
    sglang.FORMAT,
    linux.FORMAT,
    kubernetes.FORMAT,
    slurm.FORMAT,
    ray.FORMAT,
    llama_cpp.FORMAT,
    onnxruntime.FORMAT,
)

_Starts: TypeAlias = tuple[tuple[int, StrEnum], ...]  # place and kind of each message
_DEFAULT_LINES = 16


def _flatten(*needles: Needles) -> Sequence[tuple[str, StrEnum]]:
    return tuple((text, kind) for each in needles for kind, texts in each.items() for text in texts)


WORDS = tuple(word for each in FORMATS for word in each.words)
_STRONG = _flatten(*(each.needles for each in FORMATS))
_VAGUE = _flatten(*(each.vague_needles for each in FORMATS))
_VAGUE_KINDS = frozenset(kind for _, kind in _VAGUE)
_FORMAT_OF = {kind: each for each in FORMATS for kind in (*each.needles, *each.vague_needles)}
_NAMES = {each.message: each.name for each in FORMATS}


def format_name(message: Message) -> str:
    """The name of the format that ``message`` is of."""
    return _NAMES[type(message)]


def is_vague(kind: StrEnum) -> bool:
    """Whether messages of ``kind`` say little more than that memory ran out."""
    return kind in _VAGUE_KINDS


def max_lines(kind: StrEnum) -> int:
    """Lines that a message of ``kind`` may span."""
    return _FORMAT_OF[kind].max_lines.get(kind, _DEFAULT_LINES)


def has_end(kind: StrEnum, text: str) -> bool:
    """Whether ``text``, a message of ``kind``, is known to be whole."""
    return any(end in text for end in _FORMAT_OF[kind].ends.get(kind, ()))


def parse(kind: StrEnum, text: str) -> Message | None:
    """The message of ``kind`` at the start of ``text``, or None if it is not a message."""
    return _FORMAT_OF[kind].parse(kind, text)


@lru_cache(maxsize=32)  # the ranks of a job say the same
def strong_starts(text: str) -> _Starts:
    """Place and kind of each message in ``text`` that gives details, in order."""
    return _all_starts(_STRONG, text)


@lru_cache(maxsize=32)
def vague_starts(text: str) -> _Starts:
    """Place and kind of each message in ``text`` that says little, in order."""
    return _all_starts(_VAGUE, text)


def _all_starts(needles: Sequence[tuple[str, StrEnum]], text: str) -> _Starts:
    """One a place. ``text`` is searched once for each needle, however many messages are in it."""
    starts: dict[int, StrEnum] = {}
    for needle, kind in needles:
        if needle in text:
            for begin in _begins(kind, needle, text):
                starts.setdefault(begin, kind)
    return tuple(sorted(starts.items()))


def _begins(kind: StrEnum, needle: str, text: str) -> Iterator[int]:
    """Where messages of ``kind`` begin, in the order of their needles."""
    find_start = _FORMAT_OF[kind].find_start
    place = text.find(needle)
    while place >= 0:
        begin = find_start(kind, text, place)
        if begin is not None and begin >= 0:
            yield begin
        place = text.find(needle, place + 1)
