"""Prompt in, text and a recording out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from memscope.errors import MemscopeError
from memscope_runners.decoder import Decoded, Decoder
from memscope_runners.q8.weights import CheckpointSource
from memscope_runners.settings import Settings

if TYPE_CHECKING:
    from memscope.writer import Recorder


def decode(
    checkpoint: CheckpointSource,
    prompt: str,
    settings: Settings,
    *,
    max_tokens: int = 32,
    ignore_eos: bool = False,
    is_chat: bool = False,
    recorder: Recorder | None = None,
    on_token: Callable[[int], None] | None = None,
) -> Decoded:
    """Continues `prompt` greedily on a fresh device and releases it again.

    Raises MemscopeError for what cannot run, OutOfMemory where the device limit is too small.
    """
    tokenizer = checkpoint.tokenizer
    if not prompt:
        raise MemscopeError("The prompt is empty.", "Give some text to continue.")
    prompt_ids = tokenizer.encode_chat(prompt) if is_chat else tokenizer.encode(prompt)
    tokens = check_request(checkpoint, prompt_ids, max_tokens)
    decoder = Decoder(checkpoint, settings, tokens, recorder)
    try:
        decoded = decoder.generate(
            prompt_ids, max_tokens=max_tokens, ignore_eos=ignore_eos, on_token=on_token
        )
    finally:
        decoder.close()
    decoded.text = tokenizer.decode(decoded.token_ids)
    return decoded


def check_request(checkpoint: CheckpointSource, prompt_ids: Sequence[int], max_tokens: int) -> int:
    """Positions that a request needs; MemscopeError where it cannot run."""
    context = checkpoint.config.context
    if not prompt_ids:
        raise MemscopeError("The prompt is empty.", "Give some text to continue.")
    if max_tokens < 1:
        raise MemscopeError(f"--max-tokens {max_tokens} asks for nothing.", "Ask for at least 1.")
    needed = len(prompt_ids) + max_tokens
    if needed > context:
        raise MemscopeError(
            f"{len(prompt_ids)} prompt tokens and {max_tokens} new ones exceed the model's"
            f" context of {context}.",
            "Shorten the prompt or lower --max-tokens.",
        )
    return needed
