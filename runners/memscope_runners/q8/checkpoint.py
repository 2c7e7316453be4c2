"""A quantized model in memory or in a `.q8.safetensors` file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from memscope_runners.q8.config import ModelConfig
from memscope_runners.q8.floats import FloatModel
from memscope_runners.q8.quantize import write_slab
from memscope_runners.q8.slab import SlabLayout
from memscope_runners.q8.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A CheckpointSource; the slabs, head last, may lie in ordinary memory or in a mapped file."""

    name: str
    config: ModelConfig
    tokenizer: Tokenizer
    fixed: Mapping[str, torch.Tensor]
    slabs: Sequence[torch.Tensor]

    @property
    def layer_layout(self) -> SlabLayout:
        return self.config.layer_layout

    @property
    def head_layout(self) -> SlabLayout:
        return self.config.head_layout

    def slab(self, layer: int) -> torch.Tensor:
        return self.slabs[layer]

    @classmethod
    def quantized(cls, model: FloatModel) -> Checkpoint:
        """Quantizes a small model into ordinary memory."""
        config = model.config
        layouts = [config.layer_layout] * config.layers + [config.head_layout]
        return cls(
            name=config.name,
            config=config,
            tokenizer=Tokenizer(model.tokenizer_file),
            fixed={name: model.tensor(name) for name in config.fixed_shapes()},
            slabs=[write_slab(model, layer, layout) for layer, layout in enumerate(layouts)],
        )
