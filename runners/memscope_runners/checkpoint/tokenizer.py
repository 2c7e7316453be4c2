"""Text to token ids and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tokenizers

from memscope.errors import MemscopeError
from memscope_runners.checkpoint.chat import render_chat


@dataclass(frozen=True, slots=True)
class TokenizerFile:
    """The tokenizer as a checkpoint stores it.

    `tokenizers`' JSON, the chat template, if any, and the special tokens that templates write by
    name (bos_token, eos_token).
    """

    model_json: str
    chat_template: str | None
    special_tokens: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        values = {"model": self.model_json, "chat_template": self.chat_template}
        return json.dumps(values | {"special_tokens": dict(self.special_tokens)})

    @classmethod
    def from_json(cls, text: str) -> TokenizerFile:
        """The inverse of to_json; reads older versions too. Raises MemscopeError."""
        try:
            values = json.loads(text)
            special = {str(k): str(v) for k, v in values.get("special_tokens", {}).items()}
            return cls(values["model"], values["chat_template"], special)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _malformed(error) from None


class Tokenizer:
    """A `tokenizers` tokenizer with the model's chat format."""

    def __init__(self, file: TokenizerFile) -> None:
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(file.model_json)
        except Exception as error:  # tokenizers raises bare Exception
            raise _malformed(error) from None
        self._file = file

    def encode(self, text: str) -> list[int]:
        """Token ids of the text, with the start token if the model uses one."""
        return self._ids(_checked(text), add_special_tokens=True)

    def encode_chat(self, message: str) -> list[int]:
        """Token ids of one user message in the model's chat format, ready for the answer."""
        file = self._file
        text = render_chat(file.chat_template, _checked(message), file.special_tokens)
        return self._ids(text, add_special_tokens=False)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of the ids, without special tokens."""
        return str(self._tokenizer.decode(list(token_ids)))

    def stream(self) -> TextStream:
        return TextStream(self)

    def _ids(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            return list(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)
        except Exception as error:  # tokenizers raises bare Exception
            raise _malformed(error) from None


class TextStream:
    """Decodes ids one by one; a character split over tokens comes out once it is whole."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._pending: list[int] = []
        self._shown = ""

    def push(self, token_id: int) -> str:
        """The text that this token completes; may be empty."""
        self._pending.append(token_id)
        text = self._tokenizer.decode(self._pending)
        if text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        new, self._shown = text[len(self._shown) :], text
        if "\n" in new:  # a safe place to start anew, so that what is decoded again stays short
            self._pending = [token_id]  # some decoders drop the space before a first token
            self._shown = self._tokenizer.decode(self._pending)
        return new

    def finish(self) -> str:
        """The rest of the text; incomplete characters are replaced."""
        text = self._tokenizer.decode(self._pending)
        return text[len(self._shown) :]


def _checked(text: str) -> str:
    """``text``, whose bytes Python escapes one by one where the locale is not UTF-8."""
    try:
        return text.encode("utf-8", "surrogateescape").decode()
    except UnicodeError:
        raise MemscopeError("The prompt is not valid UTF-8.", "Give it as UTF-8 text.") from None


def _malformed(error: Exception) -> MemscopeError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return MemscopeError(
        f"The model's tokenizer is malformed ({reason}).", "Fetch the model again."
    )
