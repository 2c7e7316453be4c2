"""Every family on a GPU: a window against the resident run, and against the host's logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from memscope.errors import MemscopeError
from memscope_runners.checkpoint.checkpoint import open_checkpoint
from memscope_runners.checkpoint.checkpoint_writer import write_checkpoint
from memscope_runners.checkpoint.huggingface import HuggingFaceModel
from memscope_runners.checkpoint.synthetic import TINY
from memscope_runners.decoder import Decoder, make_ops
from memscope_runners.memory.choice import make_device
from memscope_runners.q8.weights import CheckpointSource
from memscope_runners.settings import Settings
from tests.runners.checkpoint.family_files import FAMILIES, save_by_hand

pytestmark = pytest.mark.gpu

PROMPT = [(37 * step + step * step) % 512 for step in range(90)]  # past Llama 3's own context
INPUTS = (PROMPT, [5], [301], [77], [440])
DEVICE = "cuda"
WINDOWS = (
    Settings("past", 1),
    Settings("past", 2, prefetch=False),
    Settings("pinned", 2, unit="entry"),
    Settings("lru", 1, allocator="naive"),
)


def logits(checkpoint: CheckpointSource, settings: Settings) -> torch.Tensor:
    """float32 (steps, vocab) behind the same inputs, whatever the model would have said."""
    decoder = Decoder(checkpoint, replace(settings, poison=True), len(PROMPT) + len(INPUTS))
    try:
        return torch.stack([step.cpu() for step in run_steps(decoder, INPUTS)])
    finally:
        decoder.close()


def run_steps(decoder: Decoder, inputs: Sequence[list[int]]) -> list[torch.Tensor]:
    return [decoder.run_step(step, ids).logits.clone() for step, ids in enumerate(inputs)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_window_changes_no_bit_and_the_host_agrees(
    tmp_path: Path, family: str, dtype: torch.dtype
) -> None:
    save_by_hand(tmp_path / "model", family, dtype=dtype, shard_bytes=200_000)
    write_checkpoint(HuggingFaceModel(tmp_path / "model"), tmp_path / "model.q8.safetensors")
    checkpoint = open_checkpoint(tmp_path / "model.q8.safetensors")
    resident = logits(checkpoint, Settings(device=DEVICE))
    for window in WINDOWS:
        assert torch.equal(logits(checkpoint, replace(window, device=DEVICE)), resident), window
    error = (resident - logits(checkpoint, Settings())).abs() / resident.std()
    print(f"{family}: over the logits' spread, max {error.max():.1e}, mean {error.mean():.1e}")
    assert error.max() <= 1e-3


def test_heads_that_the_kernels_cannot_take_are_one_sentence() -> None:
    device = make_device(DEVICE)
    try:
        with pytest.raises(MemscopeError, match=r"heads of 80\. .* --device host"):
            make_ops(replace(TINY, head_dim=80), device)
    finally:
        device.close()
