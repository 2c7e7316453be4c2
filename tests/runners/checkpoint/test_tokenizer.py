"""Text, ids, and the chat format."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memscope.errors import MemscopeError
from memscope_runners.checkpoint.synthetic import CHAT_TEMPLATE, byte_tokenizer
from memscope_runners.checkpoint.tokenizer import Tokenizer, TokenizerFile

TOKENIZER = Tokenizer(TokenizerFile(byte_tokenizer(512).to_str(), CHAT_TEMPLATE))


@given(st.text().filter(lambda text: "<|" not in text))  # special tokens are left out
def test_text_comes_back_from_its_ids(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.text(alphabet="aé🙂 \n�", max_size=40))
def test_a_stream_gives_the_whole_text_and_no_half_character(text: str) -> None:
    stream = TOKENIZER.stream()
    pieces = [stream.push(token) for token in TOKENIZER.encode(text)]
    assert "".join([*pieces, stream.finish()]) == text
    if "\N{REPLACEMENT CHARACTER}" not in text:
        assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"model": 3, "chat_template": null}',
        '{"model": "{}", "chat_template": null, "special_tokens": []}',
    ],
)
def test_a_malformed_tokenizer_is_one_error(text: str) -> None:
    with pytest.raises(MemscopeError, match="tokenizer is malformed"):
        Tokenizer(TokenizerFile.from_json(text))


def test_a_tokenizer_kept_before_special_tokens_were_is_read() -> None:
    older = json.dumps({"model": "{}", "chat_template": "{{ bos_token }}"})
    assert TokenizerFile.from_json(older) == TokenizerFile("{}", "{{ bos_token }}", {})


def test_a_chat_is_encoded_with_the_special_tokens_of_its_template() -> None:
    file = TokenizerFile(
        byte_tokenizer(512).to_str(), "{{ bos_token }}", {"bos_token": "<|im_end|>"}
    )
    kept = TokenizerFile.from_json(file.to_json())
    assert Tokenizer(kept).encode_chat("Hello") == [2]


def test_a_prompt_from_a_locale_without_utf_8_is_understood() -> None:
    escaped = "café".encode().decode("ascii", "surrogateescape")
    assert TOKENIZER.encode(escaped) == TOKENIZER.encode("café")


def test_a_prompt_in_another_encoding_is_refused() -> None:
    for encode in (TOKENIZER.encode, TOKENIZER.encode_chat):
        with pytest.raises(MemscopeError, match="UTF-8"):
            encode("caf\udce9")


def test_a_vocabulary_that_lacks_its_unknown_token_is_one_error() -> None:
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}
    tokenizer = Tokenizer(TokenizerFile(json.dumps({"model": model}), None))
    with pytest.raises(MemscopeError, match="tokenizer is malformed"):
        tokenizer.encode("b")
