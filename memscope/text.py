"""Text from unknown sources, made safe for a terminal."""

from __future__ import annotations

import unicodedata


def clean(text: object, limit: int | None = None) -> str:
    """``text`` on one line, control characters replaced, cut to ``limit`` characters."""
    shown = str(text)
    if limit is not None:
        shown = shown[: limit * 4]  # of a megabyte no more than can be shown is looked at
    plain = "".join(
        "\ufffd" if unicodedata.category(character)[0] == "C" else character
        for character in " ".join(shown.split())
    )
    return plain if limit is None or len(plain) <= limit else f"{plain[: limit - 1]}…"
