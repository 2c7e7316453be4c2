"""Small models of the Llama family as files, written by the libraries that own the formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import torch

from memscope_runners.checkpoint.gguf import NAMES
from memscope_runners.checkpoint.synthetic import TINY, SyntheticModel, byte_tokenizer
from memscope_runners.q8.config import ModelConfig
from memscope_runners.q8.floats import ENTRIES

VOCAB = 512


def save_llama(
    folder: Path, *, is_tied: bool = True, kv_heads: int = 2, shard_size: str = "1GB"
) -> Any:
    """A random transformers Llama, saved with its tokenizer; returns the model."""
    transformers = __import__("transformers")
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        max_position_embeddings=256,
        tie_word_embeddings=is_tied,
        initializer_range=0.1,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(folder, max_shard_size=shard_size)
    byte_tokenizer(VOCAB).save(str(folder / "tokenizer.json"))
    return model


def permute(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """The row order that llama.cpp's converter stores q and k in."""
    rows, columns = weight.shape
    halves = weight.view(heads, 2, rows // heads // 2, columns)
    return halves.transpose(1, 2).reshape(rows, columns)


def save_gguf(
    path: Path,
    config: ModelConfig = TINY,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    **metadata: str,
) -> None:
    """The synthetic model as llama.cpp would store it, its matrices in `kind`."""
    writer = gguf.GGUFWriter(path, metadata.get("architecture", "llama"))
    _write_metadata(writer, config)
    for name, tensor, heads in _tensors(config):
        stored = permute(tensor, heads) if heads else tensor
        if tensor.ndim == 1:
            writer.add_tensor(name, stored.numpy())
        else:
            writer.add_tensor(name, gguf.quantize(stored.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_metadata(writer: gguf.GGUFWriter, config: ModelConfig) -> None:
    writer.add_block_count(config.layers)
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.hidden)
    writer.add_feed_forward_length(config.intermediate)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_layer_norm_rms_eps(config.norm_epsilon)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    vocab = byte_tokenizer(config.vocab).get_vocab()
    tokens = sorted(vocab, key=vocab.__getitem__)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges([f"{token[0]} {token[1]}" for token in tokens[259:]])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_chat_template("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}")


def _tensors(config: ModelConfig) -> list[tuple[str, torch.Tensor, int]]:
    """Name, tensor, and for q and k the number of heads, else 0."""
    model = SyntheticModel(config)
    tensors = [("token_embd.weight", model.tensor("embedding"), 0)]
    tensors.append(("output_norm.weight", model.tensor("norm"), 0))
    heads = {"q": config.heads, "k": config.kv_heads}
    for layer in range(config.layers):
        for name in (*ENTRIES, "attention_norm", "mlp_norm"):
            stored = f"blk.{layer}.{NAMES[name]}.weight"
            tensors.append((stored, model.tensor(f"layers.{layer}.{name}"), heads.get(name, 0)))
    return tensors
