"""A model's own chat format, which it carries as a Jinja template."""

from __future__ import annotations

from collections.abc import Mapping

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from memscope.errors import MemscopeError
from memscope.text import clean


def render_chat(template: str | None, message: str, special_tokens: Mapping[str, str]) -> str:
    """Format one user message as transformers' `apply_chat_template` does.

    The template comes from strangers and runs in Jinja's sandbox. Raises MemscopeError.
    """
    if not template:
        raise MemscopeError("The model has no chat template.", "Leave out --chat.")
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _refuse
    try:
        return environment.from_string(template).render(
            messages=[{"role": "user", "content": message}],
            add_generation_prompt=True,
            **special_tokens,
        )
    except Exception as error:  # a template may do anything that an expression of Python can
        raise MemscopeError(
            f"The model's chat template cannot be applied ({clean(error, 120)}).",
            "Leave out --chat and give the whole prompt as the model expects it.",
        ) from None


def _refuse(reason: object) -> None:
    """The function that a template calls to refuse a conversation."""
    raise TemplateError(str(reason))
