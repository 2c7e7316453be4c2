"""Kinds of messages about memory: how their lines look, where they begin, and who reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

from memscope.interop.oom_log.formats import host as host_messages
from memscope.interop.oom_log.formats import node as node_messages
from memscope.interop.oom_log.formats import runtimes as runtime_messages
from memscope.interop.oom_log.formats import servers as server_refusals
from memscope.interop.oom_log.formats import torch as oom_formats
from memscope.interop.oom_log.formats import torch_fields
from memscope.interop.oom_log.formats import xla as xla_messages
from memscope.interop.oom_log.formats.servers import Refusal
from memscope.interop.oom_log.formats.torch import OomMessage

Message: TypeAlias = OomMessage | Refusal

# By kind, those whose text says more than that memory ran out.
_SOURCES = (
    *(oom_formats, xla_messages, server_refusals),
    *(host_messages, node_messages, runtime_messages),
)
Needles: TypeAlias = Sequence[tuple[str, str]]  # what is looked for, and the kind that has it


def _needles(*kinds: dict[str, tuple[str, ...]]) -> Needles:
    return tuple(
        (needle, kind) for each in kinds for kind, texts in each.items() for needle in texts
    )


STRONG = _needles(*(source.NEEDLES for source in _SOURCES))
VAGUE = _needles(oom_formats.VAGUE_NEEDLES)
WORDS = tuple(word for source in _SOURCES for word in source.WORDS)

_STARTS: dict[str, Callable[[str, str, int], int | None]] = {
    kind: source.start_of for source in _SOURCES for kind in source.NEEDLES
}


def parse(kind: str, text: str) -> Message | None:
    """The message of ``kind`` at the start of ``text``; None where it is none after all."""
    if kind in xla_messages.NEEDLES:
        return xla_messages.parse_xla(kind, text)
    if kind in server_refusals.NEEDLES:
        return server_refusals.parse_refusal(kind, text)
    if kind in host_messages.NEEDLES:
        return host_messages.parse_host(kind, text)
    if kind in node_messages.NEEDLES:
        return node_messages.parse_node(kind, text)
    if kind in runtime_messages.NEEDLES:
        return runtime_messages.parse_runtime(kind, text)
    return torch_fields.parse_message(kind, text)


@lru_cache(maxsize=32)  # the ranks of a job say the same
def strong_starts(text: str) -> tuple[tuple[int, str], ...]:
    """Place and kind of each message that begins in ``text`` and says more, in order."""
    return _all_starts(STRONG, text)


@lru_cache(maxsize=32)
def vague_starts(text: str) -> tuple[tuple[int, str], ...]:
    """The same of those that say no more than that memory ran out."""
    return _all_starts(VAGUE, text)


def _all_starts(needles: Needles, text: str) -> tuple[tuple[int, str], ...]:
    """One a place. ``text`` is searched once for each needle, however many messages are in it."""
    found: dict[int, str] = {}
    for needle, kind in needles:
        if needle in text:
            for begin in _begins(kind, needle, text):
                found.setdefault(begin, kind)
    return tuple(sorted(found.items()))


def _begins(kind: str, needle: str, text: str) -> Iterator[int]:
    """Where messages of ``kind`` begin, in the order of their needles."""
    place = text.find(needle)
    while place >= 0:
        begin = _STARTS.get(kind, oom_formats.start_of)(kind, text, place)
        if begin is not None and begin >= 0:
            yield begin
        place = text.find(needle, place + 1)
