"""Every window to decode with, and what must be equal for all of them."""

from __future__ import annotations

from collections.abc import Iterator

from memscope_runners.decoder import Decoded


def windows(layers: int) -> Iterator[tuple[str, int | None]]:
    yield "off", None
    for policy in ("past", "symmetric", "lru", "pinned"):
        for keep in range(1, layers + 1):
            yield policy, keep


def outcome(decoded: Decoded) -> tuple[list[int], list[int]]:
    return decoded.token_ids, decoded.logits_crcs
