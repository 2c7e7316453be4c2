"""A model of the Llama family in a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import gguf
import numpy as np
import tokenizers
import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors

from memscope.errors import MemscopeError
from memscope_runners.checkpoint.tokenizer import TokenizerFile
from memscope_runners.q8.config import ModelConfig

NAMES = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "attention_norm": "attn_norm",
    "mlp_norm": "ffn_norm",
}
Result = TypeVar("Result")
TOP_NAMES = {"norm": "output_norm", "embedding": "token_embd", "lm_head": "output"}
CONTROL, USER_DEFINED = 3, 4  # llama_token_type in llama.cpp
DIGITS_FIRST = ("smollm",)
GPT2_SPLIT = ("gpt-2", "default")


class GgufModel:
    """A FloatModel over a mapped GGUF file. Raises MemscopeError for unsupported files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        reader = _guarded(path, lambda: gguf.GGUFReader(path))
        self._tensors: dict[str, Any] = {tensor.name: tensor for tensor in reader.tensors}
        self._metadata = _guarded(path, lambda: _metadata(reader))
        if "token_embd.weight" not in self._tensors:
            raise _damaged(path, "token_embd.weight is missing")
        self.config = ModelConfig.from_gguf(
            self._metadata,
            vocab=int(self._tensors["token_embd.weight"].shape[1]),
            is_tied="output.weight" not in self._tensors,
        )
        if "rope_freqs.weight" in self._tensors:
            raise MemscopeError(
                f"{path} scales its rope frequencies, which is not supported.",
                "Name a model without rope scaling.",
            )

    @property
    def tokenizer_file(self) -> TokenizerFile:
        tokenizer = _guarded(self._path, lambda: build_tokenizer(self._metadata))
        template = self._metadata.get("tokenizer.chat_template")
        return TokenizerFile(
            tokenizer.to_str(),
            template if isinstance(template, str) else None,
            special_tokens(self._metadata),
        )

    def tensor(self, name: str) -> torch.Tensor:
        """float32, shaped as the config has it, q and k rows in Hugging Face's order."""
        if name == "lm_head" and self.config.is_tied:
            name = "embedding"
        stored = self._tensors.get(_stored_name(name))
        if stored is None:
            raise _damaged(self._path, f"{_stored_name(name)} is missing")
        array = _guarded(self._path, lambda: gguf.dequantize(stored.data, stored.tensor_type))
        tensor = torch.from_numpy(np.array(array, dtype=np.float32))
        shape = self.config.shape_of(name)
        if tuple(tensor.shape) != shape:
            raise _damaged(self._path, f"{name} is {tuple(tensor.shape)} where {shape} belongs")
        if name.endswith(".q"):
            return unpermute(tensor, self.config.heads)
        return unpermute(tensor, self.config.kv_heads) if name.endswith(".k") else tensor


def unpermute(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo the row order for interleaved rope: (heads · head_dim, columns) in and out.

    llama.cpp's converter stores rows 0, d/2, 1, d/2 + 1, … of each head (`permute` of its
    LlamaModel); Hugging Face pairs row i with row i + d/2.
    """
    rows, columns = weight.shape
    pairs = weight.view(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)


def build_tokenizer(metadata: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """The byte-level BPE of the metadata. Raises MemscopeError for any other kind."""
    kind, split = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind != "gpt2" or split not in (*DIGITS_FIRST, *GPT2_SPLIT):
        raise MemscopeError(
            f"The file's tokenizer ({kind}, {split}) is not supported.",
            "Name the model's Hugging Face folder, whose tokenizer.json is read as it is.",
        )
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    ids = {token: index for index, token in enumerate(tokens)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = (
        pre_tokenizers.Sequence([digits, byte_level]) if split in DIGITS_FIRST else byte_level
    )
    tokenizer.decoder = decoders.ByteLevel()
    _add_special_tokens(tokenizer, tokens, metadata)
    return tokenizer


def special_tokens(metadata: Mapping[str, Any]) -> dict[str, str]:
    """bos_token and eos_token, as chat templates write them."""
    tokens = metadata["tokenizer.ggml.tokens"]
    numbers = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
    return {
        f"{name}_token": tokens[number]
        for name, number in numbers.items()
        if isinstance(number, int) and 0 <= number < len(tokens)
    }


def _add_special_tokens(
    tokenizer: tokenizers.Tokenizer, tokens: list[str], metadata: Mapping[str, Any]
) -> None:
    kinds = metadata.get("tokenizer.ggml.token_type", [])
    marked = list(zip(tokens, kinds, strict=False))
    tokenizer.add_special_tokens([token for token, kind in marked if kind == CONTROL])
    user_defined = [AddedToken(t, normalized=False) for t, k in marked if k == USER_DEFINED]
    tokenizer.add_tokens(user_defined)
    if metadata.get("tokenizer.ggml.add_bos_token"):
        start = int(metadata["tokenizer.ggml.bos_token_id"])
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{tokens[start]} $A", special_tokens=[(tokens[start], start)]
        )


def _stored_name(name: str) -> str:
    if name in TOP_NAMES:
        return f"{TOP_NAMES[name]}.weight"
    _, layer, entry = name.split(".")
    return f"blk.{layer}.{NAMES[entry]}.weight"


def _metadata(reader: Any) -> dict[str, Any]:
    return {name: field.contents() for name, field in reader.fields.items()}


def _guarded(path: Path, read: Callable[[], Result]) -> Result:
    """Call `read`; errors from a malformed file become one MemscopeError."""
    try:
        return read()
    except FileNotFoundError:
        raise MemscopeError(f"{path} does not exist.", "Check the path.") from None
    except NotImplementedError as error:
        raise MemscopeError(
            f"{path} holds a kind of weight that cannot be read ({error}).",
            "Name a file in F16, Q8_0, Q4_1 or another of the common kinds.",
        ) from None
    except MemscopeError:
        raise
    except Exception as error:  # the gguf package trusts its input: any kind of error comes out
        raise _damaged(path, (str(error).splitlines() or [type(error).__name__])[0]) from None


def _damaged(path: Path, reason: object) -> MemscopeError:
    return MemscopeError(f"{path} is no whole GGUF file ({reason}).", "Fetch the model again.")
