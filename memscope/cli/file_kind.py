"""What a file is, by how it begins: a recording, a memory snapshot of torch, or a log."""

from __future__ import annotations

import zlib

from memscope.errors import MemscopeError

HEAD_BYTES = 1 << 12
NAME_A_FILE = "Name a log, a torch memory snapshot or a recording, or - for standard input."
_GZIP = b"\x1f\x8b"
_PICKLE = b"\x80"
_RECORDING = b"\xff\xff\xff\xff"
_JSON_KEYS = (b'"segments"', b'"device_traces"', b'"segment_type"')
# Of a text no more than this share is control characters.
_CONTROL_SHARE = 0.1


def file_kind(head: bytes) -> str:
    """What a file that begins with ``head`` is. Raises MemscopeError where it is nothing known."""
    if not head.strip():
        raise MemscopeError("The input is empty.", NAME_A_FILE)
    if head.startswith(_PICKLE):
        return "snapshot"
    if head.startswith(_RECORDING):
        return "recording"
    if head.lstrip()[:1] in (b"{", b"[") and any(key in head for key in _JSON_KEYS):
        return "snapshot"
    if head[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        control = sum(byte < 9 or 13 < byte < 27 for byte in head)
        if control > _CONTROL_SHARE * len(head):
            raise MemscopeError(
                "The input is no text and nothing that memscope knows.", NAME_A_FILE
            )
    return "log"


def unpacked(head: bytes) -> bytes:
    """The beginning of what a gzip file holds; else ``head``. Raises MemscopeError."""
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(31).decompress(head, HEAD_BYTES)
    except zlib.error:
        raise MemscopeError("The input is a damaged gzip file.", "Pack it again.") from None
