"""A model before it is quantized."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import torch

from memscope_runners.q8.config import ModelConfig
from memscope_runners.q8.weights import embedding_rows

if TYPE_CHECKING:
    from memscope_runners.checkpoint.tokenizer import TokenizerFile

ENTRIES = ("q", "k", "v", "o", "gate", "up", "down")


class FloatModel(Protocol):
    """Config, tokenizer, and tensors by name, read one at a time.

    Names: `layers.N.q` (and k, v, o, gate, up, down), `lm_head` where untied, and those of
    `ModelConfig.fixed_shapes`; a tied `lm_head` gives the embedding.
    """

    @property
    def config(self) -> ModelConfig: ...
    @property
    def tokenizer_file(self) -> TokenizerFile: ...
    def tensor(self, name: str) -> torch.Tensor:
        """The tensor in its float dtype, rows = outputs. Raises MemscopeError if missing."""
        ...


class FloatWeights:
    """The WeightSource of an unquantized model in float32, for comparisons."""

    def __init__(self, model: FloatModel) -> None:
        self.layers = model.config.layers
        self.fixed = {name: model.tensor(name) for name in model.config.fixed_shapes()}
        self._layers = [
            {name: model.tensor(f"layers.{layer}.{name}").float() for name in ENTRIES}
            for layer in range(self.layers)
        ]
        self._head = model.tensor("lm_head").float()

    def enter_layer(self, layer: int) -> Mapping[str, torch.Tensor]:
        return self._layers[layer]

    def enter_head(self) -> torch.Tensor:
        return self._head

    def head_rows(self, token_ids: torch.Tensor) -> torch.Tensor:
        return embedding_rows(self.fixed, self._head, token_ids)
