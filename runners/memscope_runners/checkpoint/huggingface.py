"""A model in a local Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from memscope.errors import MemscopeError
from memscope_runners.checkpoint.families import family_of, read_config
from memscope_runners.checkpoint.tokenizer import TokenizerFile
from memscope_runners.memory.pages import is_of_file, release_pages

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
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
}
TOP_NAMES = {"norm": "norm", "embedding": "embed_tokens"}
HEAD = "lm_head.weight"
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class HuggingFaceModel:
    """A FloatModel over mapped safetensors files, sharded or not, read tensor by tensor.

    The pages of a tensor are released when the next one is read. The tensor stays valid and is
    read from the file again if it is used.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, Any] = {}
        self._last: torch.Tensor | None = None
        values = _read_json(folder / "config.json")
        self._prefix = family_of(values).prefix
        self._files = self._files_by_tensor()
        self.config = read_config(
            values,
            _read_json_if_there(folder / "generation_config.json"),
            name=folder.resolve().name,
            has_head=HEAD in self._files,
        )

    @property
    def tokenizer_file(self) -> TokenizerFile:
        settings = _read_json_if_there(self._folder / "tokenizer_config.json")
        return TokenizerFile(
            _read_text(self._folder / "tokenizer.json"),
            self._chat_template(settings),
            special_tokens(settings),
        )

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor in its saved dtype; the biases of q, k and v are joined."""
        if name == "lm_head" and self.config.is_tied:
            name = "embedding"
        layer, _, entry = name.rpartition(".")
        if entry != "qkv_bias":
            return self._read(self._stored_name(name, "weight"), self.config.shape_of(name))
        layout = self.config.layer_layout
        return torch.cat(
            [
                self._read(self._stored_name(f"{layer}.{part}", "bias"), (layout.entry(part).rows,))
                for part in "qkv"
            ]
        )

    def _stored_name(self, name: str, kind: str) -> str:
        if name == "lm_head":
            return HEAD
        if name in TOP_NAMES:
            return f"{self._prefix}.{TOP_NAMES[name]}.{kind}"
        _, layer, entry = name.split(".")
        return f"{self._prefix}.layers.{layer}.{NAMES[entry]}.{kind}"

    def _read(self, stored: str, shape: tuple[int, ...]) -> torch.Tensor:
        if stored not in self._files:
            raise _damaged(self._folder, f"it has no {stored}")
        path = self._folder / self._files[stored]
        if self._last is not None and is_of_file(self._last):
            release_pages(self._last)
        tensor = _guarded(path, lambda: self._file(path).get_tensor(stored))
        assert isinstance(tensor, torch.Tensor)
        if tuple(tensor.shape) != shape or tensor.dtype not in FLOATS:
            found = f"{stored} is {tensor.dtype} {tuple(tensor.shape)}, not float {shape}"
            raise _damaged(path, found)
        self._last = tensor
        return tensor

    def _file(self, path: Path) -> Any:
        if path.name not in self._open:
            self._open[path.name] = safe_open(path, framework="pt")
        return self._open[path.name]

    def _files_by_tensor(self) -> dict[str, str]:
        """File name by stored tensor; of one file and of shards, transformers takes the file."""
        index, single = self._folder / INDEX, self._folder / SINGLE
        if single.exists() or not index.exists():
            return dict.fromkeys(_guarded(single, lambda: self._file(single).keys()), SINGLE)
        files = _read_json(index).get("weight_map")
        if not isinstance(files, dict):
            raise _damaged(index, "it has no weight_map")
        return {str(tensor): Path(str(file)).name for tensor, file in files.items()}

    def _chat_template(self, settings: dict[str, Any]) -> str | None:
        alone = self._folder / "chat_template.jinja"
        if alone.exists():
            return _read_text(alone)
        kept = _read_json_if_there(self._folder / "chat_template.json")
        template = kept.get("chat_template", settings.get("chat_template"))
        return template if isinstance(template, str) else None


def identity_files(folder: Path) -> list[Path]:
    """The files that identify a folder's model."""
    return sorted(p for p in folder.iterdir() if p.suffix in (".json", ".safetensors", ".jinja"))


def special_tokens(settings: dict[str, Any]) -> dict[str, str]:
    """bos_token and eos_token as tokenizer_config.json has them: a text, or one with its kind."""
    tokens = {}
    for name in ("bos_token", "eos_token"):
        token = settings.get(name)
        content = token.get("content") if isinstance(token, dict) else token
        if isinstance(content, str):
            tokens[name] = content
    return tokens


def _guarded(path: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except FileNotFoundError:
        raise _missing(path) from None
    except Exception as error:  # safetensors has one class of its own, and raises others too
        raise _damaged(path, error) from None


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


def _read_json_if_there(path: Path) -> dict[str, Any]:
    return _read_json(path) if path.exists() else {}


def _missing(path: Path) -> MemscopeError:
    return MemscopeError(
        f"{path.parent} has no {path.name}.",
        "Name a folder as Hugging Face lays it out: config.json, tokenizer.json, *.safetensors.",
    )


def _damaged(path: Path, reason: object) -> MemscopeError:
    text = (str(reason).splitlines() or [type(reason).__name__])[0]
    return MemscopeError(f"{path} is damaged ({text}).", "Fetch the model again.")
