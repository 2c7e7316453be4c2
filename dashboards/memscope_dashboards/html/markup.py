"""Text from recordings made safe for a page: it comes from strangers."""

from __future__ import annotations

import html
import json
import re
from importlib.resources import files
from string import Template

# Controls, lone surrogates, and marks that reorder or hide text.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_JSON_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def plain(text: object, *, limit: int = 400) -> str:
    """``text`` without what a reader cannot see, at most ``limit`` characters of it."""
    shown = _UNSEEN.sub("\ufffd", str(text))
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def escape(text: object, *, limit: int = 400) -> str:
    """``text`` for a page's text or an attribute in quotes; also for plotly, which reads tags."""
    return html.escape(plain(text, limit=limit))


def embed_json(text: str) -> str:
    """JSON ``text`` for a script element: nothing in it can end the element."""
    return text.translate(_JSON_ESCAPES)


def to_json(value: object) -> str:
    """``value`` as JSON for a script element."""
    return embed_json(json.dumps(value, separators=(",", ":")))


def resource(name: str) -> str:
    """A text file of this package, without the spaces around it."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8").strip()


def fill(template: str, **fragments: str) -> str:
    """``template`` with each $name replaced by a fragment that is markup already."""
    return Template(template).substitute(fragments)
