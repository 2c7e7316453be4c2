"""Local Hugging Face folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from memscope.errors import MemscopeError
from memscope_runners.checkpoint.checkpoint import quantized
from memscope_runners.checkpoint.huggingface import INDEX, HuggingFaceModel
from tests.runners.checkpoint.family_files import LLAMA3, save_by_hand
from tests.runners.checkpoint.model_files import save_llama


def change_config(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_sharded_folder_is_the_same_model(tmp_path: Path) -> None:
    save_llama(tmp_path / "whole")
    save_llama(tmp_path / "parts", shard_size="200KB")
    assert (tmp_path / "parts" / INDEX).exists()
    whole, parts = (quantized(HuggingFaceModel(tmp_path / name)) for name in ("whole", "parts"))
    assert all(torch.equal(a, b) for a, b in zip(whole.slabs, parts.slabs, strict=True))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    save_llama(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(MemscopeError, match=f"has no {name}"):
        HuggingFaceModel(tmp_path)


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    save_llama(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(MemscopeError, match=r"has no tokenizer\.json"):
        quantized(HuggingFaceModel(tmp_path))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    save_llama(tmp_path, shard_size="200KB")
    shard = sorted(tmp_path.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(MemscopeError, match=f"has no {shard.name}"):
        quantized(HuggingFaceModel(tmp_path))


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.4, 0.999])
def test_truncated_weights_are_one_error(tmp_path: Path, share: float) -> None:
    save_llama(tmp_path)
    path = tmp_path / "model.safetensors"
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])
    with pytest.raises(MemscopeError, match=r"model\.safetensors is damaged"):
        quantized(HuggingFaceModel(tmp_path))


SLIDING = {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 2}
YARN = {"rope_type": "yarn", "factor": 4.0}


@pytest.mark.parametrize(
    ("family", "values", "named"),
    [
        ("llama", {"model_type": "mamba", "architectures": ["MambaForCausalLM"]}, "MambaForCausal"),
        (
            "qwen3",
            {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]},
            "Qwen3Moe",
        ),
        ("qwen2", {"architectures": ["Qwen2ForSequenceClassification"]}, "SequenceClassification"),
        ("llama", {"model_type": ["llama"], "architectures": None}, "llama"),
        ("llama", {"model_type": "\x1b[2Jevil", "architectures": None}, "evil is not supported"),
        ("llama", {"attention_bias": True}, "Llama with attention_bias"),
        ("qwen3", {"attention_bias": True}, "Qwen3 with attention_bias"),
        ("llama", {"mlp_bias": True}, "Llama with mlp_bias"),
        ("llama", {"rope_scaling": YARN}, "Llama with yarn rope scaling"),
        ("qwen2", {"rope_parameters": YARN}, "Qwen2 with yarn rope scaling"),
        ("qwen3", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "Qwen3 with dynamic rope"),
        ("llama", {"rope_scaling": {"type": "mrope"}}, "Llama with mrope rope scaling"),
        ("llama", {"rope_scaling": {"full_attention": YARN}}, "a rope for each kind of layer"),
        ("llama", {"rope_scaling": "yarn"}, "malformed rope"),
        ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
        ("llama-3", {"rope_scaling": {**LLAMA3, "factor": float("nan")}}, "factor = nan"),
        ("llama-3", {"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}}, "high_freq_factor"),
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ("llama", {"hidden_act": "gelu"}, "gelu"),
        ("qwen2", SLIDING, "Qwen2 with a sliding window of 64"),
        ("qwen3", {**SLIDING, "layer_types": ["sliding_attention"] * 3}, "sliding window of 64"),
        ("qwen3", {"quantization_config": {"quant_method": "fp8"}}, r"quantized already \(fp8\)"),
        ("qwen3-vl", {"quantization_config": {"quant_method": "awq"}}, "quantized already"),
        ("qwen3-vl", {"text_config": None}, "no text_config"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    tmp_path: Path, family: str, values: dict[str, object], named: str
) -> None:
    save_by_hand(tmp_path, family)
    change_config(tmp_path, **values)
    with pytest.raises(MemscopeError, match=named) as caught:
        HuggingFaceModel(tmp_path)
    assert caught.value.next_step
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "values",
    [
        {**SLIDING, "use_sliding_window": False},
        {**SLIDING, "sliding_window": None},
        {**SLIDING, "sliding_window": 256},  # the whole context
        {**SLIDING, "max_window_layers": 3},  # no layer is past these
        {**SLIDING, "layer_types": ["full_attention"] * 3},
    ],
)
def test_a_sliding_window_that_hides_nothing_is_no_obstacle(
    tmp_path: Path, values: dict[str, object]
) -> None:
    save_by_hand(tmp_path, "qwen2")
    change_config(tmp_path, **values)
    assert HuggingFaceModel(tmp_path).config.family == "Qwen2"


@pytest.mark.parametrize(
    ("top", "text", "has_head", "is_tied"),
    [
        (True, None, True, True),  # as Qwen3's own small models are saved
        (None, True, False, True),
        (None, None, True, False),
        (False, True, True, False),
        (False, True, False, True),
    ],
)
def test_whether_the_head_is_the_embedding(
    tmp_path: Path, top: bool | None, text: bool | None, has_head: bool, is_tied: bool
) -> None:
    save_by_hand(tmp_path, "qwen3-vl" if has_head else "qwen3-vl-tied")
    text_config = json.loads((tmp_path / "config.json").read_text())["text_config"]
    change_config(
        tmp_path,
        tie_word_embeddings=top,
        text_config=text_config | {"tie_word_embeddings": text},
    )
    model = HuggingFaceModel(tmp_path)
    assert model.config.is_tied == is_tied
    assert model.tensor("lm_head").shape == (512, 128)


def test_a_head_that_is_missing_is_named(tmp_path: Path) -> None:
    save_by_hand(tmp_path, "qwen3-tied")
    change_config(tmp_path, tie_word_embeddings=False)
    with pytest.raises(MemscopeError, match=r"has no lm_head\.weight"):
        quantized(HuggingFaceModel(tmp_path))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("chat_template.jinja", "{{ 1 }}"),
        ("chat_template.json", '{"chat_template": "{{ 1 }}"}'),
        ("tokenizer_config.json", '{"chat_template": "{{ 1 }}"}'),
    ],
)
def test_the_chat_template_is_found_where_it_lies(tmp_path: Path, name: str, text: str) -> None:
    save_by_hand(tmp_path, "qwen3")
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / name).write_text(text)
    assert HuggingFaceModel(tmp_path).tokenizer_file.chat_template == "{{ 1 }}"


def test_a_tensor_stays_what_it_was_when_its_pages_were_given_back(tmp_path: Path) -> None:
    save_by_hand(tmp_path, "qwen2", shard_bytes=100_000)
    model = HuggingFaceModel(tmp_path)
    kept = {name: model.tensor(name) for name in ("layers.0.q", "layers.0.qkv_bias", "lm_head")}
    copies = {name: tensor.clone() for name, tensor in kept.items()}
    quantized(model)
    assert all(torch.equal(kept[name], copies[name]) for name in kept)


@pytest.mark.parametrize(
    "values",
    [
        {"hidden_size": "big"},
        {"hidden_size": float("nan")},
        {"hidden_size": 100},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": 2.5},
        {"num_hidden_layers": 10**9},  # its norms alone would take hours to count
        {"num_attention_heads": float("inf")},
        {"head_dim": 10**30},
        {"rope_parameters": {"rope_theta": 10**30}},
        {"rms_norm_eps": float("nan")},
        {"vocab_size": None},
    ],
)
def test_sizes_that_cannot_be_are_one_error(tmp_path: Path, values: dict[str, object]) -> None:
    save_llama(tmp_path)
    change_config(tmp_path, **values)
    with pytest.raises(MemscopeError):
        HuggingFaceModel(tmp_path)


def test_weights_of_another_shape_are_one_error(tmp_path: Path) -> None:
    save_llama(tmp_path)
    change_config(tmp_path, intermediate_size=256)
    with pytest.raises(MemscopeError, match="is damaged"):
        quantized(HuggingFaceModel(tmp_path))


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "[]"])
def test_a_config_that_is_no_json_is_one_error(tmp_path: Path, text: str) -> None:
    save_llama(tmp_path)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(MemscopeError, match=r"config\.json is damaged"):
        HuggingFaceModel(tmp_path)
