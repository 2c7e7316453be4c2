"""Logits of our forward pass, with float and with q8 weights."""

from __future__ import annotations

import torch

from memscope_runners.checkpoint.checkpoint import quantized
from memscope_runners.q8.floats import FloatModel, FloatWeights
from memscope_runners.q8.kv_cache import KvCache
from memscope_runners.q8.model import Model
from memscope_runners.q8.weights import ResidentWeights


def float_logits(model: FloatModel, ids: list[int]) -> torch.Tensor:
    weights = FloatWeights(model)
    runner = Model(model.config, weights.fixed, weights)
    return runner.all_logits(ids, KvCache.allocate(model.config, len(ids)))


def q8_logits(model: FloatModel, ids: list[int]) -> torch.Tensor:
    checkpoint = quantized(model)
    runner = Model(checkpoint.config, checkpoint.fixed, ResidentWeights(checkpoint))
    return runner.all_logits(ids, KvCache.allocate(checkpoint.config, len(ids)))
