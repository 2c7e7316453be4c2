"""Escaping for text from recordings, which is not trusted."""

from __future__ import annotations

import html
import json
import re
from importlib.resources import files
from string import Template

# Control characters, lone surrogates, and characters that reorder or hide text.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_JSON_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def plain(text: object, *, limit: int = 400) -> str:
    """``text`` with invisible characters replaced, cut to ``limit`` characters."""
    shown = _UNSEEN.sub("\ufffd", str(text))
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def escape(text: object, *, limit: int = 400) -> str:
    """``text`` escaped for HTML, for quoted attributes, and for plotly, which reads tags."""
    return html.escape(plain(text, limit=limit))


def embed_json(text: str) -> str:
    """JSON ``text`` escaped so that it cannot close a script element."""
    return text.translate(_JSON_ESCAPES)


def to_json(value: object) -> str:
    """``value`` as JSON for a script element."""
    return embed_json(json.dumps(value, separators=(",", ":")))


def resource(name: str) -> str:
    """Contents of a text file in this package, without surrounding whitespace."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8").strip()


def fill(template: str, **fragments: str) -> str:
    """``template`` with each $name replaced. The fragments are markup and are not escaped."""
    return Template(template).substitute(fragments)
