"""Loads plain data from an untrusted pickle or JSON file: no classes, no functions, no calls.

Use it in a process with limited memory and time (`memscope.interop.snapshot.guarded`): a pickle of
nine bytes can ask for gigabytes.
"""

from __future__ import annotations

import gzip
import json
import pickle
import zlib
from collections.abc import Callable
from typing import IO, Any, NoReturn, cast

from memscope.errors import MemscopeError

GZIP_MAGIC = b"\x1f\x8b"
CHUNK_BYTES = 1 << 20
NEXT_STEP = "Dump it again with torch.cuda.memory._dump_snapshot(FILE)."


class PlainUnpickler(pickle.Unpickler):
    """Loads dicts, lists, tuples, texts and numbers, and refuses everything else."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Raises MemscopeError: a snapshot needs no class."""
        named = "".join(
            character for character in f"{module}.{name}"[:80] if character.isprintable()
        )
        raise MemscopeError(
            f"is refused: it asks to load {named}, and a memory snapshot names no class.",
            "Do not open it with pickle.load; ask whoever sent it for a snapshot.",
        )


def open_plain(stream: IO[bytes]) -> IO[bytes]:
    """``stream``, unpacked if it is gzip."""
    magic = stream.read(2)
    stream.seek(0)
    return cast(IO[bytes], gzip.GzipFile(fileobj=stream)) if magic == GZIP_MAGIC else stream


def measure(stream: IO[bytes], limit: int) -> int:
    """The unpacked size of ``stream`` in bytes, counted to just past ``limit``. Rewinds it.

    Raises MemscopeError if it cannot be unpacked.
    """
    if not isinstance(stream, gzip.GzipFile):
        size = stream.seek(0, 2)
        stream.seek(0)
        return size
    size = 0
    try:
        while size <= limit and (chunk := stream.read(CHUNK_BYTES)):
            size += len(chunk)
        stream.seek(0)
    except (EOFError, OSError, zlib.error):
        raise MemscopeError("is cut short or damaged.", NEXT_STEP) from None
    return size


def load_plain(stream: IO[bytes]) -> Any:
    """The data in ``stream``. Raises MemscopeError, or MemoryError if memory is short."""
    try:
        first = stream.read(1)
        stream.seek(0)
        if not first:
            raise MemscopeError("is empty.", NEXT_STEP)
        # No pickle starts with the opening sign of JSON: these are not among its opcodes.
        load: Callable[[IO[bytes]], Any] = json.load if first in b"{[" else _unpickle
        return load(stream)
    except (MemscopeError, MemoryError):
        raise
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise MemscopeError("is cut short or damaged.", NEXT_STEP) from None
    except RecursionError:
        raise MemscopeError("is nested too deeply for a memory snapshot.", NEXT_STEP) from None
    except Exception as error:  # a damaged pickle raises nearly anything
        if "truncated" in str(error):
            raise MemscopeError("is cut short or damaged.", NEXT_STEP) from None
        raise MemscopeError("is no memory snapshot, or is damaged.", NEXT_STEP) from None


def _unpickle(stream: IO[bytes]) -> Any:
    return PlainUnpickler(stream).load()
