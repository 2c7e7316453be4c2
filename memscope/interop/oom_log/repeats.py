"""Messages that a log repeats because every layer of a program prints the error again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from memscope.interop.oom_log.writer import Writer

MAX_WRITERS = 1 << 16


class LogRepeats:
    """Which writers have said which message.

    A launcher or an engine that says the same as one of its processes repeats it. Another process
    with the same numbers is a failure of its own.
    """

    def __init__(self) -> None:
        self._named: dict[int, set[Writer]] = {}  # by a message's hash, which is smaller
        self._unclaimed: dict[int, set[Writer]] = {}
        self._writers = 0

    def is_repeat(self, message: Hashable, writer: Writer) -> bool:
        """Whether ``writer``, or one that may be the same, has said ``message`` before."""
        if self._writers > MAX_WRITERS:
            self._forget()
        key = hash(message)
        named = self._named.setdefault(key, set())
        is_known = writer in named
        if not is_known:
            names = writer.coarser()
            is_known = self._claim(key, names[1:])
            before = len(named)
            named.update(names)
            self._writers += len(named) - before
            if not is_known:
                self._unclaimed.setdefault(key, set()).add(writer)
        return is_known

    def _claim(self, key: int, names: Sequence[Writer]) -> bool:
        """Whether a coarser name has said the message. Each such message counts once."""
        unclaimed = self._unclaimed.get(key, set())
        for coarser in names:
            if coarser in unclaimed:
                unclaimed.discard(coarser)
                return True
        return False

    def _forget(self) -> None:
        """Forget all, so that memory stays constant. Later repeats count as new messages."""
        self._named.clear()
        self._unclaimed.clear()
        self._writers = 0
