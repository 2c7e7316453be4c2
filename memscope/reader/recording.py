"""An open recording: its header, its state, and its events in order."""

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
    """Raw facts only, as of the moment it was opened. Events written later are not in it.

    Batches are read from the file each time, so memory use stays constant. Older segments beside
    ``path`` come first.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises MemscopeError if ``path`` is not a readable recording."""
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
    """The recording at ``path``. In a folder or glob: that of the run's first process.

    Raises MemscopeError if there is none.
    """
    from memscope.reader.run_files import find_run

    return Recording(find_run(path).first)
