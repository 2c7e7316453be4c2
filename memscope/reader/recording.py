"""A recording opened: its header, its state, and its events in the order of the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Self

from memscope.errors import MemscopeError
from memscope.format.batch import Batch
from memscope.format.header import Header
from memscope.reader.chain import Chain
from memscope.reader.state import State


class Recording:
    """Raw facts only, as they stood when it was opened; what grows afterwards is not in it.

    Batches are read from the file each time they are asked for, so that memory stays flat. Older
    segments beside the file at ``path`` come first.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises MemscopeError where ``path`` is no readable recording."""
        try:
            self._chain = Chain(path)
        except FileNotFoundError:
            raise MemscopeError(f"{path} is empty.", "Record again.") from None
        self._pieces = self._chain.scan()
        self.path = self._chain.path
        self.header: Header = self._chain.header
        self.schema = self._chain.schema
        self.state: State = self._chain.state()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._chain.close()

    def __len__(self) -> int:
        """Number of whole batches."""
        return len(self._pieces)

    def batches(self, limit: int | None = None) -> Iterator[Batch]:
        """The first ``limit`` batches, or all of them, decoded one at a time."""
        for piece in self._pieces[:limit]:
            yield self._chain.read(piece)


def open_recording(path: str | os.PathLike[str]) -> Recording:
    """The recording at ``path``, or of the first process of the run in a folder or a glob.

    Raises MemscopeError where it is none.
    """
    from memscope.reader.run_files import find_run

    return Recording(find_run(path).first)
