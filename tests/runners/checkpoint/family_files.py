"""Tiny checkpoints of every family, as their publishers lay them out.

`save_by_hand` needs no transformers and writes the spelling of older files; `save_pretrained` is
transformers' own, of the same sizes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from memscope_runners.checkpoint.synthetic import CHAT_TEMPLATE, byte_tokenizer

VOCAB, HEADS, KV_HEADS = 512, 4, 2
Values = dict[str, Any]
SIZES: Values = {
    "vocab_size": VOCAB,
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 3,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,  # pairs of rows lie below, between and above
}
MROPE = {"rope_type": "default", "mrope_section": [12, 10, 10], "mrope_interleaved": True}
VISION = {
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_heads": 2,
    "out_hidden_size": 128,
    "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0],
}
FAMILIES: dict[str, Values] = {
    "llama": {"model_type": "llama"},
    "llama-3": {"model_type": "llama", "rope_theta": 500_000.0, "rope_scaling": LLAMA3},
    "qwen2": {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 64},
    "qwen2-tied": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "head_dim": 64},
    "qwen3-tied": {"model_type": "qwen3", "head_dim": 64, "tie_word_embeddings": True},
    "qwen3-vl": {"model_type": "qwen3_vl", "head_dim": 64, "rope_scaling": MROPE},
    "qwen3-vl-tied": {
        "model_type": "qwen3_vl",
        "head_dim": 64,
        "rope_scaling": MROPE,
        "tie_word_embeddings": True,
    },
}
CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
}


def config_values(family: str, **sizes: object) -> Values:
    """The contents of config.json."""
    own = dict(FAMILIES[family])
    kind = str(own.pop("model_type"))
    is_tied = bool(own.pop("tie_word_embeddings", False))
    top = {
        "model_type": kind,
        "architectures": [CLASSES[kind]],
        "tie_word_embeddings": is_tied,
    }
    text = {**SIZES, "eos_token_id": 1, **own, **sizes}
    if kind != "qwen3_vl":
        return {**text, **top}
    text_config = {**text, "model_type": "qwen3_vl_text"}
    return {**top, "text_config": text_config, "vision_config": VISION}


def save_by_hand(
    folder: Path,
    family: str,
    *,
    dtype: torch.dtype = torch.float32,
    shard_bytes: int | None = None,
    **sizes: object,
) -> None:
    """A folder with random weights, norms and biases, in one file or in shards."""
    folder.mkdir(parents=True, exist_ok=True)
    values = config_values(family, **sizes)
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 0]}')
    save_tokenizer(folder)
    if shard_bytes is None:
        tensors = {name: random_tensor(name, shape, dtype) for name, shape in shapes(values)}
        save_file(tensors, folder / "model.safetensors")
    else:
        save_shards(folder, values, dtype, shard_bytes)


def save_shards(folder: Path, values: Values, dtype: torch.dtype, shard_bytes: int) -> None:
    """Fills one shard after the other, and writes their index."""
    weight_map: dict[str, str] = {}
    shard: dict[str, torch.Tensor] = {}
    listed = list(shapes(values))
    for index, (name, shape) in enumerate(listed):
        shard[name] = random_tensor(name, shape, dtype)
        is_last = index == len(listed) - 1
        if is_last or sum(tensor.nbytes for tensor in shard.values()) >= shard_bytes:
            file = f"model-{len(set(weight_map.values())) + 1:05}.safetensors"
            save_file(shard, folder / file)
            weight_map |= dict.fromkeys(shard, file)
            shard = {}
    index_file = folder / "model.safetensors.index.json"
    index_file.write_text(json.dumps({"weight_map": weight_map}))


def shapes(values: Values) -> list[tuple[str, tuple[int, ...]]]:
    """Every tensor of the text tower by its stored name."""
    text = values.get("text_config", values)
    kind, hidden, wide = values["model_type"], text["hidden_size"], text["intermediate_size"]
    heads, kv_heads = text["num_attention_heads"], text["num_key_value_heads"]
    head_dim = text.get("head_dim", hidden // heads)
    prefix = "model.language_model" if kind == "qwen3_vl" else "model"
    rows = {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}
    found: list[tuple[str, tuple[int, ...]]] = [
        (f"{prefix}.embed_tokens.weight", (text["vocab_size"], hidden))
    ]
    for layer in range(text["num_hidden_layers"]):
        at = f"{prefix}.layers.{layer}"
        found += [(f"{at}.self_attn.{x}_proj.weight", (rows[x], hidden)) for x in "qkv"]
        found.append((f"{at}.self_attn.o_proj.weight", (hidden, rows["q"])))
        found += [(f"{at}.mlp.{x}_proj.weight", (wide, hidden)) for x in ("gate", "up")]
        found.append((f"{at}.mlp.down_proj.weight", (hidden, wide)))
        found.append((f"{at}.input_layernorm.weight", (hidden,)))
        found.append((f"{at}.post_attention_layernorm.weight", (hidden,)))
        if kind == "qwen2":
            found += [(f"{at}.self_attn.{x}_proj.bias", (rows[x],)) for x in "qkv"]
        if kind in ("qwen3", "qwen3_vl"):
            found += [(f"{at}.self_attn.{x}_norm.weight", (head_dim,)) for x in "qk"]
    found.append((f"{prefix}.norm.weight", (hidden,)))
    if not values["tie_word_embeddings"]:
        found.append(("lm_head.weight", (text["vocab_size"], hidden)))
    return found


def random_tensor(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Weights that keep the size of what they are applied to; no norm is 1 and no bias 0."""
    generator = torch.Generator().manual_seed(sum(name.encode()))
    tensor = torch.randn(shape, generator=generator)
    if name.endswith("bias"):
        return (0.5 * tensor).to(dtype)
    if len(shape) == 1:
        return (1.0 + 0.2 * tensor).to(dtype)
    return (tensor / shape[1] ** 0.5).to(dtype)


def save_tokenizer(folder: Path) -> None:
    byte_tokenizer(VOCAB).save(str(folder / "tokenizer.json"))
    settings = {"chat_template": CHAT_TEMPLATE, "bos_token": None, "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def save_pretrained(folder: Path, family: str, shard_size: str = "1GB") -> Any:
    """transformers' own model and files, norms and biases random; returns the model."""
    transformers = __import__("transformers")
    values = config_values(family)
    kind = values.pop("model_type")
    torch.manual_seed(5)
    config = transformers.AutoConfig.for_model(kind, **values)
    model = getattr(transformers, CLASSES[kind])(config).eval()
    for name, parameter in model.named_parameters():
        random = random_tensor(name, tuple(parameter.shape), torch.float32)
        parameter.data.copy_(random if parameter.ndim <= 2 else parameter.data)
    model.save_pretrained(folder, max_shard_size=shard_size)
    save_tokenizer(folder)
    return model
