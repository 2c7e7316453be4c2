"""Decode one prompt: text and a recording come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memscope.errors import MemscopeError
from memscope_runners.decoder import Decoded, Decoder
from memscope_runners.memory.allocators import check_allocator
from memscope_runners.memory.choice import kind_of
from memscope_runners.memory.parts import split_layout
from memscope_runners.memory.policies import make_policy
from memscope_runners.progress import Progress, unseen
from memscope_runners.q8.weights import CheckpointSource
from memscope_runners.settings import Settings

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt that fits the model with `max_tokens` more, and how to run it."""

    checkpoint: CheckpointSource
    settings: Settings
    prompt_ids: tuple[int, ...]
    max_tokens: int
    ignore_eos: bool = False


def prepare(
    checkpoint: CheckpointSource,
    prompt: str,
    settings: Settings,
    *,
    max_tokens: int = 32,
    ignore_eos: bool = False,
    is_chat: bool = False,
) -> Request:
    """Check a request before anything starts. Raises MemscopeError if it cannot run."""
    _check_settings(settings, checkpoint)
    tokenizer, context = checkpoint.tokenizer, checkpoint.config.context
    encode = tokenizer.encode_chat if is_chat else tokenizer.encode
    prompt_ids = tuple(encode(prompt)) if prompt else ()
    if not prompt_ids:
        raise MemscopeError("The prompt is empty.", "Give some text to continue.")
    if max_tokens < 1:
        raise MemscopeError(f"--max-tokens {max_tokens} asks for nothing.", "Ask for at least 1.")
    if len(prompt_ids) + max_tokens > context:
        raise MemscopeError(
            f"{len(prompt_ids)} prompt tokens and {max_tokens} new ones exceed the model's"
            f" context of {context}.",
            "Shorten the prompt or lower --max-tokens.",
        )
    return Request(checkpoint, settings, prompt_ids, max_tokens, ignore_eos)


def decode(
    request: Request,
    *,
    recorder: Recorder | None = None,
    on_token: Callable[[int], None] | None = None,
    progress: Progress = unseen,
) -> Decoded:
    """Continue the prompt greedily on a new device, then release the device.

    `progress` is told about "pinning slabs". Raises OutOfMemory if the device limit is too small.
    """
    checkpoint, settings = request.checkpoint, request.settings
    tokens = len(request.prompt_ids) + request.max_tokens
    decoder = Decoder(checkpoint, settings, tokens, recorder, progress)
    try:
        decoded = decoder.generate(
            request.prompt_ids,
            max_tokens=request.max_tokens,
            ignore_eos=request.ignore_eos,
            on_token=on_token,
        )
    finally:
        decoder.close()
    decoded.text = checkpoint.tokenizer.decode(decoded.token_ids)
    return decoded


def _check_settings(settings: Settings, checkpoint: CheckpointSource) -> None:
    make_policy(settings.policy, checkpoint.config.layers, settings.keep)
    split_layout(checkpoint.layer_layout, settings.unit)
    check_allocator(settings.allocator, kind_of(settings.device))
    limit = settings.device_limit_bytes
    if limit is not None and limit <= 0:
        raise MemscopeError("A device limit of nothing holds no model.", "Give one like 96MiB.")
    if settings.host_keep is not None and settings.host_keep < 1:
        raise MemscopeError(
            f"--host-keep {settings.host_keep} leaves nothing to copy from.", "Give at least 1."
        )
