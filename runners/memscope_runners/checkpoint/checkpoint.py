"""A quantized model in memory or in a `.q8.safetensors` file, which is mapped, not read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from memscope.errors import MemscopeError
from memscope_runners.checkpoint.tokenizer import Tokenizer, TokenizerFile
from memscope_runners.q8.config import ModelConfig
from memscope_runners.q8.floats import FloatModel
from memscope_runners.q8.quantize import quantize_slab
from memscope_runners.q8.slab import SlabLayout

FORMAT = "memscope-q8/1"
SUFFIX = ".q8.safetensors"
HEAD = "slab.head"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A CheckpointSource with slabs in ordinary memory or in a mapped file; lm_head is the last."""

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


def quantized(model: FloatModel) -> Checkpoint:
    """Quantize a small model in memory."""
    config = model.config
    return Checkpoint(
        name=config.name,
        config=config,
        tokenizer=Tokenizer(model.tokenizer_file),
        fixed={name: model.tensor(name) for name in config.fixed_shapes()},
        slabs=[quantize_slab(model, layer) for layer in range(config.layers + 1)],
    )


def slab_name(config: ModelConfig, layer: int) -> str:
    """The tensor that holds a layer's slab in the file; layer L is the head."""
    return HEAD if layer == config.layers else f"slab.{layer}"


def open_checkpoint(path: Path) -> Checkpoint:
    """Map a `.q8.safetensors` file. Raises MemscopeError if it is not one or not complete."""
    try:
        with safe_open(path, framework="pt") as file:
            return _read(path, file, file.metadata() or {})
    except FileNotFoundError:  # what safetensors says of one without permission, too
        what = "cannot be read" if path.exists() else "does not exist"
        raise MemscopeError(f"{path} {what}.", "Check the path and its permissions.") from None
    except MemscopeError as error:
        raise MemscopeError(f"{path}: {error.problem}", error.next_step) from None
    except Exception as error:  # safetensors has one class of its own, and raises others too
        raise _damaged(path, error) from None


def _read(path: Path, file: Any, metadata: Mapping[str, str]) -> Checkpoint:
    if metadata.get("format") != FORMAT:
        raise MemscopeError(
            "It is not a q8 checkpoint of this version.",
            "Name the model's own folder or GGUF file; it is quantized on the way.",
        )
    config = ModelConfig.from_json(metadata.get("config", ""))
    layouts = (config.layer_layout, config.head_layout)
    sizes = {slab_name(config, layer): (layouts[0].bytes,) for layer in range(config.layers)}
    sizes[HEAD] = (layouts[1].bytes,)
    names = set(file.keys())
    slabs = [_tensor(file, names, name, size) for name, size in sizes.items()]
    if any(slab.dtype != torch.uint8 for slab in slabs):
        raise ValueError("a slab is not bytes")
    fixed = {
        name: _tensor(file, names, name, shape) for name, shape in config.fixed_shapes().items()
    }
    tokenizer = Tokenizer(TokenizerFile.from_json(metadata.get("tokenizer", "")))
    return Checkpoint(config.name, config, tokenizer, fixed, slabs)


def _tensor(file: Any, names: set[str], name: str, shape: tuple[int, ...]) -> torch.Tensor:
    if name not in names:
        raise ValueError(f"{name} is missing")
    tensor = file.get_tensor(name)
    assert isinstance(tensor, torch.Tensor)
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} is {tuple(tensor.shape)} where {shape} belongs")
    return tensor


def _damaged(path: Path, error: Exception) -> MemscopeError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return MemscopeError(
        f"{path} is no whole q8 checkpoint ({reason}).",
        "Name the model's own folder or GGUF file; it is quantized on the way.",
    )
