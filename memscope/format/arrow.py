"""pyarrow, imported so that it starts no thread in the program.

A process with one thread may fork as it likes; Python 3.12 warns of any other. Arrow's jemalloc
starts a thread when it is loaded, though it is not the default allocator, unless its own variable
says otherwise. Arrow's thread pool starts only if an option allows it.
"""

from __future__ import annotations

import os

_VARIABLE = "JE_ARROW_MALLOC_CONF"
_is_free = _VARIABLE not in os.environ
if _is_free:
    os.environ[_VARIABLE] = "background_thread:false"
try:
    import pyarrow as pa
finally:
    if _is_free:
        del os.environ[_VARIABLE]

__all__ = ["WRITE_OPTIONS", "decode_batch", "pa"]

WRITE_OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_READ_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)


def decode_batch(opening: bytes, message: bytes) -> pa.RecordBatch:
    """The batch in ``message``, from a stream that begins with ``opening``."""
    stream = pa.ipc.open_stream(pa.BufferReader(opening + message), options=_READ_OPTIONS)
    return stream.read_next_batch()
