"""SmolLM2-135M-Instruct in q8."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from memscope.errors import MemscopeError
from memscope_runners.checkpoint.fetch import open_model
from memscope_runners.q8.kv_cache import KvCache
from memscope_runners.q8.model import Model, greedy
from memscope_runners.q8.weights import CheckpointSource, ResidentWeights

pytestmark = pytest.mark.model

PARAGRAPH = (
    "The quick brown fox jumps over the lazy dog. In 1969, Neil Armstrong became the first person"
    " to walk on the Moon. Water boils at 100 degrees Celsius at sea level. Photosynthesis is the"
    " process by which green plants use sunlight to make food from carbon dioxide and water. The"
    " French Revolution began in 1789 and led to the end of the monarchy."
)


@pytest.fixture(scope="module")
def checkpoint() -> CheckpointSource:
    try:
        return open_model()
    except MemscopeError as error:
        pytest.skip(f"the real model cannot be had: {error}")


@pytest.fixture(scope="module")
def model(checkpoint: CheckpointSource) -> Model:
    return Model(checkpoint.config, checkpoint.fixed, ResidentWeights(checkpoint))


def test_mean_loss_of_the_paragraph(checkpoint: CheckpointSource, model: Model) -> None:
    ids = checkpoint.tokenizer.encode(PARAGRAPH)
    logits = model.all_logits(ids, KvCache.allocate(checkpoint.config, len(ids)))
    loss = float(functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])))
    print(f"mean loss {loss:.4f} nats over {len(ids) - 1} tokens")
    assert loss <= 2.0


def test_the_capital_of_france_is_paris(checkpoint: CheckpointSource, model: Model) -> None:
    ids = checkpoint.tokenizer.encode("The capital of France is")
    kv = KvCache.allocate(checkpoint.config, len(ids) + 8)
    answer = [greedy(model.forward(ids, kv))]
    for _ in range(7):
        answer.append(greedy(model.forward(answer[-1:], kv)))
    assert "Paris" in checkpoint.tokenizer.decode(answer)


def test_digits_are_single_tokens(checkpoint: CheckpointSource) -> None:
    encoded = checkpoint.tokenizer.encode("1969")
    assert [checkpoint.tokenizer.decode([token]) for token in encoded] == list("1969")
