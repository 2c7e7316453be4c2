"""Weight sources: where the model takes its weights from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import torch

from memscope_runners.q8.config import ModelConfig
from memscope_runners.q8.slab import Q8Weight, SlabLayout

if TYPE_CHECKING:
    from memscope_runners.checkpoint.tokenizer import Tokenizer

Weight = Q8Weight | torch.Tensor


class WeightSource(Protocol):
    """Gives the model each layer's weights in turn; they are valid until the next call."""

    @property
    def layers(self) -> int: ...

    def enter_layer(self, layer: int) -> Mapping[str, Weight]:
        """q, k, v, o, gate, up and down of the layer about to run."""
        ...

    def enter_head(self) -> Weight:
        """lm_head, about to run."""
        ...

    def head_rows(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Embeddings of int64 (tokens,): float32 (tokens, hidden)."""
        ...


class CheckpointSource(Protocol):
    """A quantized model on disk or in memory; layer L is lm_head."""

    @property
    def name(self) -> str: ...
    @property
    def config(self) -> ModelConfig: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def layer_layout(self) -> SlabLayout: ...
    @property
    def head_layout(self) -> SlabLayout: ...
    @property
    def fixed(self) -> Mapping[str, torch.Tensor]: ...
    def slab(self, layer: int) -> torch.Tensor:
        """The slab of a layer, uint8 (bytes,), not to be written to."""
        ...


class ResidentWeights:
    """All slabs of a checkpoint used in place."""

    def __init__(self, checkpoint: CheckpointSource) -> None:
        self.layers = checkpoint.config.layers
        self._layers = [
            checkpoint.layer_layout.weights(checkpoint.slab(layer)) for layer in range(self.layers)
        ]
        self._head = checkpoint.head_layout.weights(checkpoint.slab(self.layers))["lm_head"]
        self._fixed = checkpoint.fixed

    def enter_layer(self, layer: int) -> Mapping[str, Q8Weight]:
        return self._layers[layer]

    def enter_head(self) -> Q8Weight:
        return self._head

    def head_rows(self, token_ids: torch.Tensor) -> torch.Tensor:
        return embedding_rows(self._fixed, self._head, token_ids)


def embedding_rows(
    fixed: Mapping[str, torch.Tensor], head: Weight, token_ids: torch.Tensor
) -> torch.Tensor:
    """float32 (tokens, hidden): of the untied embedding, or where tied, of lm_head's own rows."""
    if "embedding" in fixed:
        return fixed["embedding"][token_ids].float()
    return head.rows(token_ids) if isinstance(head, Q8Weight) else head[token_ids].float()
