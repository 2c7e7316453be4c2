"""Text, ids, and the chat format."""

from __future__ import annotations

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memscope.errors import MemscopeError
from memscope_runners.q8.synthetic import CHAT_TEMPLATE, byte_tokenizer
from memscope_runners.q8.tokenizer import Tokenizer, TokenizerFile, chatml

SMOLLM_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}" + CHAT_TEMPLATE.removeprefix("{% for message in messages %}")
)
TOKENIZER = Tokenizer(TokenizerFile(byte_tokenizer(512).to_str(), CHAT_TEMPLATE))


@given(st.text())
def test_text_comes_back_from_its_ids(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.text(alphabet="aé🙂 \n�", max_size=40))
def test_a_stream_gives_the_whole_text_and_no_half_character(text: str) -> None:
    stream = TOKENIZER.stream()
    pieces = [stream.push(token) for token in TOKENIZER.encode(text)]
    assert "".join([*pieces, stream.finish()]) == text
    if "\N{REPLACEMENT CHARACTER}" not in text:
        assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, SMOLLM_TEMPLATE])
def test_chatml_is_what_the_template_renders(template: str) -> None:
    messages = [{"role": "user", "content": "Where is Paris?"}]
    rendered = jinja2.Template(template).render(messages=messages, add_generation_prompt=True)
    assert chatml(template, "Where is Paris?") == rendered


@pytest.mark.parametrize("template", [None, "[INST] {{ messages }} [/INST]"])
def test_another_chat_format_is_refused(template: str | None) -> None:
    with pytest.raises(MemscopeError, match="chat template"):
        chatml(template, "Hello")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model": 3, "chat_template": null}'])
def test_a_malformed_tokenizer_is_one_error(text: str) -> None:
    with pytest.raises(MemscopeError, match="tokenizer is malformed"):
        Tokenizer(TokenizerFile.from_json(text))


def test_a_prompt_from_a_locale_without_utf_8_is_understood() -> None:
    escaped = "café".encode().decode("ascii", "surrogateescape")
    assert TOKENIZER.encode(escaped) == TOKENIZER.encode("café")


def test_a_prompt_in_another_encoding_is_refused() -> None:
    for encode in (TOKENIZER.encode, TOKENIZER.encode_chat):
        with pytest.raises(MemscopeError, match="UTF-8"):
            encode("caf\udce9")
