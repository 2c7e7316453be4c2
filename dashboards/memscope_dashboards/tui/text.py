"""Facts of a recording as text: they may hold anything."""

from __future__ import annotations

from memscope.text import clean


def fact(facts: object, key: str, field: str) -> object:
    """One field of the fact ``key``; None where there is none."""
    found = facts.get(key) if isinstance(facts, dict) else None
    return found.get(field) if isinstance(found, dict) else None


def fact_text(facts: object, key: str, field: str, limit: int = 40) -> str:
    """One field of a fact as clean text; empty where it is absent or no text or number."""
    value = fact(facts, key, field)
    return clean(value, limit) if isinstance(value, str | int | float) else ""
