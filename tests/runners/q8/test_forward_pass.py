"""The forward pass against transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from memscope_runners.checkpoint.huggingface import HuggingFaceModel
from memscope_runners.checkpoint.synthetic import TINY, SyntheticModel
from memscope_runners.q8.floats import FloatWeights
from memscope_runners.q8.kv_cache import KvCache
from memscope_runners.q8.model import Model
from tests.runners.checkpoint.model_files import save_llama
from tests.runners.q8.logits import float_logits, q8_logits

IDS = [3, 200, 45, 45, 511, 0, 77, 130, 12, 99]


@pytest.mark.parametrize("is_tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_unquantized_logits_are_those_of_transformers(
    tmp_path: Path, is_tied: bool, kv_heads: int
) -> None:
    reference = save_llama(tmp_path, is_tied=is_tied, kv_heads=kv_heads)
    with torch.no_grad():
        expected = reference(torch.tensor([IDS])).logits[0]
    error = (float_logits(HuggingFaceModel(tmp_path), IDS) - expected).abs()
    assert error.max() <= 1e-4, f"max {error.max():.2e}, mean {error.mean():.2e}"


def test_q8_logits_stay_close_to_the_float_ones(tmp_path: Path) -> None:
    save_llama(tmp_path)
    model = HuggingFaceModel(tmp_path)
    exact = float_logits(model, IDS)
    error = (q8_logits(model, IDS) - exact).abs() / exact.std()
    print(f"q8 error over the logits' spread: max {error.max():.4f}, mean {error.mean():.4f}")
    assert error.max() <= 0.15
    assert error.mean() <= 0.03


def test_decoding_token_by_token_gives_the_prefill_s_logits() -> None:
    model = SyntheticModel(TINY)
    weights = FloatWeights(model)
    runner, kv = Model(TINY, weights.fixed, weights), KvCache.allocate(TINY, len(IDS))
    stepwise = [runner.forward(IDS[:4], kv), *(runner.forward([token], kv) for token in IDS[4:])]
    torch.testing.assert_close(
        torch.stack(stepwise), float_logits(model, IDS)[3:], atol=1e-4, rtol=0
    )
    assert kv.used_bytes == KvCache.bytes_for(TINY, len(IDS))


def test_a_prompt_in_two_parts_gives_the_same_logits() -> None:
    model = SyntheticModel(TINY)
    weights = FloatWeights(model)
    runner, kv = Model(TINY, weights.fixed, weights), KvCache.allocate(TINY, len(IDS))
    runner.forward(IDS[:6], kv)
    second = runner.all_logits(IDS[6:], kv)
    torch.testing.assert_close(second, float_logits(model, IDS)[6:], atol=1e-4, rtol=0)
