"""Quantizes a model into a `.q8.safetensors` file, one slab in memory at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import torch

from memscope.errors import MemscopeError
from memscope_runners.checkpoint.checkpoint import FORMAT, SUFFIX, slab_name
from memscope_runners.checkpoint.tokenizer import Tokenizer
from memscope_runners.checkpoint.unfinished_file import remove_leftovers, replacing
from memscope_runners.progress import Progress, unseen
from memscope_runners.q8.floats import FloatModel
from memscope_runners.q8.quantize import quantize_slab

DTYPES = {
    torch.uint8: "U8",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
}
PAGE = 4096


def write_checkpoint(model: FloatModel, path: Path, progress: Progress = unseen) -> None:
    """Write a temporary file, then rename it to `path`; removes unfinished ones."""
    try:
        remove_leftovers(path.parent, SUFFIX)
        with replacing(path) as file:
            _write(model, file, progress)
    except OSError as error:
        raise MemscopeError(
            f"{path} cannot be written ({error.strerror}).",
            "Make room there, or set MEMSCOPE_CACHE_DIR to another folder.",
        ) from None


def _write(model: FloatModel, file: BinaryIO, progress: Progress) -> None:
    config = model.config
    fixed = {name: model.tensor(name) for name in config.fixed_shapes()}
    file.write(_header(model, fixed))
    slabs = config.layers + 1
    progress("quantize", 0, slabs)
    for layer in range(slabs):
        file.write(_raw(quantize_slab(model, layer)))
        progress("quantize", layer + 1, slabs)
    for tensor in fixed.values():
        file.write(_raw(tensor))


def _header(model: FloatModel, fixed: dict[str, torch.Tensor]) -> bytes:
    """safetensors' length and JSON, padded so that the data starts on a page."""
    tokenizer_file = model.tokenizer_file
    Tokenizer(tokenizer_file)  # a malformed one is found before the long work
    metadata = {
        "format": FORMAT,
        "config": model.config.to_json(),
        "tokenizer": tokenizer_file.to_json(),
    }
    header: dict[str, object] = {"__metadata__": metadata}
    offset = 0
    for name, dtype, shape, size in _tensors(model, fixed):
        offsets = [offset, offset + size]
        header[name] = {"dtype": DTYPES[dtype], "shape": shape, "data_offsets": offsets}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % PAGE)
    return len(text).to_bytes(8, "little") + text


def _tensors(
    model: FloatModel, fixed: dict[str, torch.Tensor]
) -> Iterator[tuple[str, torch.dtype, list[int], int]]:
    config = model.config
    for layer in range(config.layers + 1):
        layout = config.layer_layout if layer < config.layers else config.head_layout
        yield slab_name(config, layer), torch.uint8, [layout.bytes], layout.bytes
    for name, tensor in fixed.items():
        yield name, tensor.dtype, list(tensor.shape), tensor.nbytes


def _raw(tensor: torch.Tensor) -> memoryview:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data
