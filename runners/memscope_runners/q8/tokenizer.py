"""Text to token ids and back."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers

from memscope.errors import MemscopeError

CHATML_SYSTEM = re.compile(r"<\|im_start\|>system(?:\n|\\n)(.*?)<\|im_end\|>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TokenizerFile:
    """What a checkpoint keeps of a tokenizer: `tokenizers`' JSON and the chat template, if any."""

    model_json: str
    chat_template: str | None

    def to_json(self) -> str:
        return json.dumps({"model": self.model_json, "chat_template": self.chat_template})

    @classmethod
    def from_json(cls, text: str) -> TokenizerFile:
        """The inverse of to_json; MemscopeError for anything else."""
        try:
            values = json.loads(text)
            return cls(values["model"], values["chat_template"])
        except (KeyError, TypeError, ValueError) as error:
            raise _malformed(error) from None


class Tokenizer:
    """A `tokenizers` tokenizer with the model's chat format."""

    def __init__(self, file: TokenizerFile) -> None:
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(file.model_json)
        except Exception as error:  # tokenizers raises bare Exception
            raise _malformed(error) from None
        self._chat_template = file.chat_template

    def encode(self, text: str) -> list[int]:
        """Token ids of the raw text, with what the model itself puts before it, if anything."""
        return list(self._tokenizer.encode(_checked(text)).ids)

    def encode_chat(self, message: str) -> list[int]:
        """Token ids of one user message in the model's chat format, ready for the answer."""
        text = chatml(self._chat_template, _checked(message))
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of whole ids; special tokens are left out."""
        return str(self._tokenizer.decode(list(token_ids)))

    def stream(self) -> TextStream:
        return TextStream(self)


class TextStream:
    """Decodes ids one by one; a character split over tokens comes out once it is whole."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._pending: list[int] = []
        self._shown = ""

    def push(self, token_id: int) -> str:
        """The text that this token completed, often its own, sometimes none."""
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
        """What is left at the end, incomplete characters replaced."""
        text = self._tokenizer.decode(self._pending)
        return text[len(self._shown) :]


def chatml(template: str | None, message: str) -> str:
    """One user message in ChatML, with the default system message that the template carries.

    Raises MemscopeError where the model has no chat template or one that is not ChatML.
    """
    if not template:
        raise MemscopeError("The model has no chat template.", "Leave out --chat.")
    if "<|im_start|>" not in template or "<|im_end|>" not in template:
        raise MemscopeError(
            "The model's chat template is not ChatML, the one form that --chat writes.",
            "Leave out --chat and give the whole prompt as the model expects it.",
        )
    system = CHATML_SYSTEM.search(template)
    turns = [("system", system[1])] if system else []
    turns.append(("user", message))
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)
    return text + "<|im_start|>assistant\n"


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
