"""Tell from its first bytes whether a file is a recording, a torch memory snapshot or a log."""

from __future__ import annotations

import zlib
from enum import StrEnum

from memscope.errors import MemscopeError

HEAD_BYTES = 1 << 12
NAME_A_FILE = "Name a log, a torch memory snapshot or a recording, or - for standard input."
_GZIP = b"\x1f\x8b"
_PICKLE = b"\x80"
_RECORDING = b"\xff\xff\xff\xff"
_JSON_KEYS = (b'"segments"', b'"device_traces"', b'"segment_type"')
# Text has no larger share of control characters.
_CONTROL_SHARE = 0.1


class FileKind(StrEnum):
    """What a file can be."""

    RECORDING = "recording"
    SNAPSHOT = "snapshot"
    LOG = "log"


def file_kind(head: bytes) -> FileKind:
    """The kind of a file that begins with ``head``. Raises MemscopeError if it is unknown."""
    if not head.strip():
        raise MemscopeError("The input is empty.", NAME_A_FILE)
    if head.startswith(_PICKLE):
        return FileKind.SNAPSHOT
    if head.startswith(_RECORDING):
        return FileKind.RECORDING
    if head.lstrip()[:1] in (b"{", b"[") and any(key in head for key in _JSON_KEYS):
        return FileKind.SNAPSHOT
    if head[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        control = sum(byte < 9 or 13 < byte < 27 for byte in head)
        if control > _CONTROL_SHARE * len(head):
            raise MemscopeError(
                "The input is not text and not a file that memscope knows.", NAME_A_FILE
            )
    return FileKind.LOG


def unpacked(head: bytes) -> bytes:
    """``head`` without gzip compression, if it has any. Raises MemscopeError."""
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(31).decompress(head, HEAD_BYTES)
    except zlib.error:
        raise MemscopeError("The input is a damaged gzip file.", "Compress it again.") from None
