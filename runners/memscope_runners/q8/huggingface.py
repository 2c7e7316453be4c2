"""A model of the Llama family in a local Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from memscope.errors import MemscopeError
from memscope_runners.q8.config import ModelConfig
from memscope_runners.q8.tokenizer import TokenizerFile

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
NAMES = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
}
TOP_NAMES = {"norm": "model.norm", "embedding": "model.embed_tokens", "lm_head": "lm_head"}
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class HuggingFaceModel:
    """A FloatModel over mapped safetensors files, sharded or not, read tensor by tensor."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        values = _read_json(folder / "config.json")
        generation = folder / "generation_config.json"
        if generation.exists():
            stops = _read_json(generation).get("eos_token_id")
            values["eos_token_id"] = values.get("eos_token_id") if stops is None else stops
        self.config = ModelConfig.from_huggingface(values, name=folder.resolve().name)
        self._files = _files_by_tensor(folder)
        self._open: dict[str, Any] = {}

    @property
    def tokenizer_file(self) -> TokenizerFile:
        return TokenizerFile(_read_text(self._folder / "tokenizer.json"), self._chat_template())

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor in the dtype that it was saved in."""
        if name == "lm_head" and self.config.is_tied:
            name = "embedding"
        stored = _stored_name(name)
        path = self._folder / self._files.get(stored, SINGLE)
        try:
            tensor = self._file(path).get_tensor(stored)
        except FileNotFoundError:
            raise _missing(path) from None
        except Exception as error:  # safetensors has one class of its own, and raises others too
            raise _damaged(path, error) from None
        assert isinstance(tensor, torch.Tensor)
        shape = self.config.shape_of(name)
        if tuple(tensor.shape) != shape or tensor.dtype not in FLOATS:
            found = f"{stored} is {tensor.dtype} {tuple(tensor.shape)}, not float {shape}"
            raise _damaged(path, found)
        return tensor

    def _file(self, path: Path) -> Any:
        if path.name not in self._open:
            self._open[path.name] = safe_open(path, framework="pt")
        return self._open[path.name]

    def _chat_template(self) -> str | None:
        alone = self._folder / "chat_template.jinja"
        if alone.exists():
            return _read_text(alone)
        path = self._folder / "tokenizer_config.json"
        template = _read_json(path).get("chat_template") if path.exists() else None
        return template if isinstance(template, str) else None


def identity_files(folder: Path) -> list[Path]:
    """The files that decide what a folder's model is."""
    return sorted(p for p in folder.iterdir() if p.suffix in (".json", ".safetensors", ".jinja"))


def _stored_name(name: str) -> str:
    if name in TOP_NAMES:
        return f"{TOP_NAMES[name]}.weight"
    _, layer, entry = name.split(".")
    return f"model.layers.{layer}.{NAMES[entry]}.weight"


def _files_by_tensor(folder: Path) -> dict[str, str]:
    """File name by tensor where the weights are sharded; empty for one file."""
    if not (folder / INDEX).exists():
        if not (folder / SINGLE).exists():
            raise _missing(folder / SINGLE)
        return {}
    files = _read_json(folder / INDEX).get("weight_map")
    if not isinstance(files, dict):
        raise _damaged(folder / INDEX, "it has no weight_map")
    return {str(tensor): Path(str(file)).name for tensor, file in files.items()}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise _missing(path) from None
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(path, error) from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from None
    if not isinstance(values, dict):
        raise _damaged(path, "it is no JSON object")
    return values


def _missing(path: Path) -> MemscopeError:
    return MemscopeError(
        f"{path.parent} has no {path.name}.",
        "Name a folder as Hugging Face lays it out: config.json, tokenizer.json, *.safetensors.",
    )


def _damaged(path: Path, reason: object) -> MemscopeError:
    text = (str(reason).splitlines() or [type(reason).__name__])[0]
    return MemscopeError(f"{path} is damaged ({text}).", "Fetch the model again.")
