"""What messages about memory have in common, and what the reader must know of their format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from memscope.interop.oom_log.context import Server
from memscope.interop.oom_log.sizes import Size

SIZE_NAMES = ("requested", "total", "free", "allocated", "reserved", "limit")

Needles: TypeAlias = Mapping[Any, tuple[str, ...]]  # by kind


class Backend(StrEnum):
    """Kinds of devices, as torch and XLA name them. Messages may name others."""

    CUDA = "CUDA"
    HIP = "HIP"
    XPU = "XPU"
    NPU = "NPU"
    MPS = "MPS"
    TPU = "TPU"


@dataclass(frozen=True, slots=True)
class Message:
    """One message about memory. A size is None if the text does not give it.

    ``kind``: a member of its format's enum. ``backend``: a `Backend`, or another name in the text.
    ``detail``: a name in the text, for example of the library that failed.
    """

    kind: StrEnum
    backend: str = ""
    device: int | None = None
    requested: Size | None = None
    total: Size | None = None
    free: Size | None = None
    allocated: Size | None = None
    reserved: Size | None = None
    limit: Size | None = None
    detail: str = ""

    @property
    def sizes_bytes(self) -> dict[str, int]:
        """The sizes that the text gives, in bytes, by the names in SIZE_NAMES."""
        sizes = {name: getattr(self, name) for name in SIZE_NAMES}
        return {name: size.bytes for name, size in sizes.items() if size is not None}

    @property
    def size_count(self) -> int:
        """How many of the main sizes the text gives. They tell repeats from new failures."""
        main = (self.requested, self.total, self.free, self.allocated, self.reserved)
        return sum(size is not None for size in main)

    @property
    def weight(self) -> int:
        """How much the message explains, from 0 to 2. The heaviest of a process is explained."""
        return 1

    @property
    def accounts(self) -> dict[str, Size]:
        """What it adds to `LogContext.accounts`, if all messages of a log agree."""
        return {} if self.total is None else {"total": self.total}

    @property
    def options(self) -> dict[str, str]:
        """What it adds to `LogContext.options`, if all messages of a log agree."""
        return {}


@dataclass(frozen=True, slots=True)
class Refusal(Message):
    """An inference server refused to start or to go on for lack of memory.

    ``available``: what is left for the KV cache. ``share``: the server's share of the card, 0–1.
    ``wanted_count`` and ``fitting_count``: tokens, requests or sequences, as ``kind`` says.
    """

    available: Size | None = None
    share: float | None = None
    wanted_count: int | None = None
    fitting_count: int | None = None
    server: Server = Server.VLLM

    @property
    def size_count(self) -> int:
        """How many of its numbers the text gives."""
        sizes = (self.requested, self.total, self.free, self.available)
        numbers = (self.share, self.wanted_count, self.fitting_count)
        return sum(value is not None for value in (*sizes, *numbers))

    @property
    def weight(self) -> int:
        """How much the message explains, from 0 to 2."""
        return 2


@dataclass(frozen=True, slots=True)
class Format:
    """How one program words its messages. All texts but ``words`` are without white space.

    ``name``: also the name of the module in `memscope.analysis.diagnosis.log` that explains it.
    ``message``: the class of its messages. ``needles``: texts that each kind of message contains.
    ``vague_needles``: the same for kinds that say little; any other message comes first.
    ``words``: a line is looked at only if it holds one of these (white space included).
    ``parse(kind, text)``: the message at the start of a text, or None if there is none.
    ``find_start(kind, text, place)``: where the message begins whose needle is at ``place``, or
    None if it is not a message. ``max_lines``: lines that a message may span, 16 if not given.
    ``ends``: texts that end a message of a kind.
    """

    name: str
    message: type[Message]
    needles: Needles
    parse: Callable[[Any, str], Message | None]
    words: tuple[str, ...] = ()
    vague_needles: Needles = field(default_factory=dict)
    find_start: Callable[[Any, str, int], int | None] = lambda kind, text, place: place
    max_lines: Mapping[Any, int] = field(default_factory=dict)
    ends: Needles = field(default_factory=dict)
