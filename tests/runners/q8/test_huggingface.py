"""Local Hugging Face folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from memscope.errors import MemscopeError
from memscope_runners.q8.checkpoint import quantized
from memscope_runners.q8.huggingface import INDEX, HuggingFaceModel
from tests.runners.q8.model_files import save_llama


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


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"model_type": "mamba", "architectures": ["MambaForCausalLM"]}, "MambaForCausalLM"),
        ({"attention_bias": True}, "attention_bias"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"hidden_act": "gelu"}, "gelu"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    tmp_path: Path, values: dict[str, object], named: str
) -> None:
    save_llama(tmp_path)
    change_config(tmp_path, **values)
    with pytest.raises(MemscopeError, match=named):
        HuggingFaceModel(tmp_path)


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
