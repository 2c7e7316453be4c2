"""Models with random weights from a fixed seed, for tests and tries without a download."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice, product

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers

from memscope.errors import MemscopeError
from memscope_runners.checkpoint.tokenizer import TokenizerFile
from memscope_runners.q8.config import ModelConfig

SEED = 20
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

TINY = ModelConfig(
    name="synthetic:tiny",
    layers=6,
    hidden=128,
    intermediate=256,
    heads=4,
    kv_heads=2,
    head_dim=32,
    vocab=512,
    context=2048,
    rope_theta=10000.0,
    norm_epsilon=1e-5,
    is_tied=True,
    eos_token_ids=(0,),
)
PRESETS: Mapping[str, ModelConfig] = {
    config.name: config
    for config in (
        TINY,
        replace(TINY, name="synthetic:tiny-untied", is_tied=False),
        replace(TINY, name="synthetic:tiny-norms", has_qk_norms=True, has_qkv_bias=True),
    )
}


@dataclass(frozen=True, slots=True)
class SyntheticModel:
    """A FloatModel; each tensor depends only on the seed and its own name."""

    config: ModelConfig

    @classmethod
    def named(cls, name: str) -> SyntheticModel:
        """The preset `name`. Raises MemscopeError for an unknown one."""
        if name not in PRESETS:
            raise MemscopeError(
                f"There is no synthetic model {name}.", f"Name one of: {', '.join(PRESETS)}."
            )
        return cls(PRESETS[name])

    @property
    def tokenizer_file(self) -> TokenizerFile:
        return TokenizerFile(byte_tokenizer(self.config.vocab).to_str(), CHAT_TEMPLATE)

    def tensor(self, name: str) -> torch.Tensor:
        if name == "lm_head" and self.config.is_tied:
            name = "embedding"
        generator = torch.Generator().manual_seed(SEED + zlib.crc32(name.encode()))
        if name.endswith("norm"):
            return 1.0 + 0.1 * torch.randn(self.config.fixed_shapes()[name], generator=generator)
        if name.endswith("bias"):
            return 0.1 * torch.randn(self.config.fixed_shapes()[name], generator=generator)
        rows, columns = self.config.shape_of(name)
        return torch.randn(rows, columns, generator=generator) / math.sqrt(columns)


def byte_tokenizer(vocab: int) -> tokenizers.Tokenizer:
    """A byte-level BPE of exactly `vocab` ids: special tokens, the 256 bytes, pairs of letters."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = product("etaoinshrdlucmwf ypbgkvETAOINSHRDLU", repeat=2)
    letters = ((a.replace(" ", "Ġ"), b.replace(" ", "Ġ")) for a, b in pairs)
    merges = list(islice(letters, vocab - len(SPECIAL) - len(alphabet)))
    tokens = [*SPECIAL, *alphabet, *(a + b for a, b in merges)]
    tokens += [f"<|unused {number}|>" for number in range(vocab - len(tokens))]
    ids = {token: index for index, token in enumerate(tokens)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return tokenizer
