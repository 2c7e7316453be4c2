"""Text from recordings, made safe for a terminal: it was written by strangers."""

from __future__ import annotations

import unicodedata

MAX_CHARACTERS = 120


def clean(text: object, limit: int = MAX_CHARACTERS) -> str:
    """``text`` on one line, control characters replaced, cut to ``limit`` characters."""
    words = " ".join(str(text)[: limit * 4].split())
    plain = "".join("\ufffd" if unicodedata.category(each)[0] == "C" else each for each in words)
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def fact(facts: object, key: str, field: str) -> object:
    """One field of the fact ``key``; None where there is none. A fact may hold anything."""
    found = facts.get(key) if isinstance(facts, dict) else None
    return found.get(field) if isinstance(found, dict) else None


def fact_text(facts: object, key: str, field: str, limit: int = 40) -> str:
    """One field of a fact as clean text; empty where it is absent or no text or number."""
    value = fact(facts, key, field)
    return clean(value, limit) if isinstance(value, str | int | float) else ""
