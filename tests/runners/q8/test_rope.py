"""Rotary frequencies."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from memscope_runners.checkpoint.synthetic import TINY
from memscope_runners.q8.config import RopeScaling
from memscope_runners.q8.rope import RopeTable, frequencies

LLAMA = replace(TINY, heads=1, kv_heads=1, head_dim=128, rope_theta=500_000.0, context=131072)


@pytest.mark.parametrize(
    "scaling",
    [RopeScaling(8.0, 1.0, 4.0, 8192), RopeScaling(32.0, 1.0, 4.0, 8192), None],
    ids=["llama-3.1", "llama-3.2", "llama-3"],
)
def test_frequencies_are_those_of_transformers(scaling: RopeScaling | None) -> None:
    transformers = pytest.importorskip("transformers")
    rope = {"rope_type": "default", "rope_theta": LLAMA.rope_theta}
    if scaling is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_factor,
            "high_freq_factor": scaling.high_factor,
            "original_max_position_embeddings": scaling.original_context,
        }
    config = transformers.LlamaConfig(
        hidden_size=128, num_attention_heads=1, rope_parameters=rope, max_position_embeddings=131072
    )
    module = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
    mine = frequencies(replace(LLAMA, rope_scaling=scaling))
    torch.testing.assert_close(mine, module.inv_freq, rtol=2e-7, atol=0)


def test_only_slow_frequencies_are_slowed() -> None:
    plain = frequencies(LLAMA)
    share = frequencies(replace(LLAMA, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 8192))) / plain
    assert torch.equal(share[:20], torch.ones(20))
    assert torch.equal(share[-20:], torch.full((20,), 1 / 8))
    assert (share[1:] <= share[:-1]).all()


def test_a_table_that_grows_stays_the_same() -> None:
    table = RopeTable(TINY, torch.device("cpu"))
    first = [part.clone() for part in table.rows(0, 8)]
    table.rows(100, 3)
    assert all(torch.equal(a, b) for a, b in zip(first, table.rows(0, 8), strict=True))
