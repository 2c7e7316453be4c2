"""A model's own chat format."""

from __future__ import annotations

import pytest

from memscope.errors import MemscopeError
from memscope_runners.checkpoint.chat import render_chat
from memscope_runners.checkpoint.synthetic import CHAT_TEMPLATE

SMOLLM = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are SmolLM<|im_end|>\n' }}{% endif %}"
    + CHAT_TEMPLATE.removeprefix("{% for message in messages %}")
)
QWEN = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {{- "# Tools\\n{\\"name\\": <function-name>}<|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are Qwen.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.content is string %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- else %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
LLAMA3 = """\
{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
CHATML = "<|im_start|>user\nWhere?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (CHAT_TEMPLATE, CHATML),
        (SMOLLM, f"<|im_start|>system\nYou are SmolLM<|im_end|>\n{CHATML}"),
        (QWEN, f"<|im_start|>system\nYou are Qwen.<|im_end|>\n{CHATML}"),
        (
            LLAMA3,
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nWhere?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
    ],
    ids=["chatml", "smollm", "qwen", "llama-3"],
)
def test_the_template_s_own_text_comes_out(template: str, expected: str) -> None:
    assert render_chat(template, "Where?", {"bos_token": "<|begin_of_text|>"}) == expected


@pytest.mark.parametrize("template", [None, ""])
def test_no_template_is_one_sentence(template: str | None) -> None:
    with pytest.raises(MemscopeError, match="no chat template"):
        render_chat(template, "Hello", {})


@pytest.mark.parametrize(
    "template",
    [
        "{% if %}",
        "{{ raise_exception('images only') }}",
        "{{ messages[7].content.lower() }}",
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% for i in range(1000000000) %}{% endfor %}",
    ],
)
def test_a_template_that_fails_or_reaches_out_is_one_sentence(template: str) -> None:
    with pytest.raises(MemscopeError, match="chat template cannot be applied"):
        render_chat(template, "Hello", {})
