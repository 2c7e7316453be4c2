"""Every family against transformers, from the files that transformers saves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from memscope_runners.checkpoint.checkpoint import open_checkpoint, quantized
from memscope_runners.checkpoint.checkpoint_writer import write_checkpoint
from memscope_runners.checkpoint.huggingface import HuggingFaceModel
from memscope_runners.checkpoint.tokenizer import Tokenizer
from memscope_runners.decoder import Decoder
from memscope_runners.q8.weights import CheckpointSource
from memscope_runners.settings import Settings
from tests.runners.checkpoint.family_files import FAMILIES, save_by_hand, save_pretrained
from tests.runners.q8.logits import float_logits, q8_logits

IDS = [(37 * step + step * step) % 512 for step in range(96)]  # past Llama 3's original context


def stored_names(folder: Path) -> set[str]:
    names: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            names |= {name for name in file.keys() if not name.startswith("model.visual.")}  # noqa: SIM118
    return names


class NotingModel(HuggingFaceModel):
    """Notes the stored name of every tensor that is read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.read: set[str] = set()

    def _read(self, stored: str, shape: tuple[int, ...]) -> torch.Tensor:
        self.read.add(stored)
        return super()._read(stored, shape)


@pytest.mark.parametrize("shard_size", ["1GB", "100KB"], ids=["whole", "sharded"])
@pytest.mark.parametrize("family", FAMILIES)
def test_unquantized_logits_are_those_of_transformers(
    tmp_path: Path, family: str, shard_size: str
) -> None:
    reference = save_pretrained(tmp_path, family, shard_size)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 3) == (shard_size == "100KB")
    with torch.no_grad():
        expected = reference(torch.tensor([IDS])).logits[0]
    model = NotingModel(tmp_path)
    error = (float_logits(model, IDS) - expected).abs()
    print(f"{family}: max {error.max():.1e}, mean {error.mean():.1e}, of {expected.std():.2f}")
    assert error.max() <= 1e-4, f"max {error.max():.2e}, mean {error.mean():.2e}"
    assert model.read == stored_names(tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_q8_logits_stay_close_to_the_float_ones(tmp_path: Path, family: str) -> None:
    save_pretrained(tmp_path, family)
    model = HuggingFaceModel(tmp_path)
    exact = float_logits(model, IDS)
    error = (q8_logits(model, IDS) - exact).abs() / exact.std()
    print(f"{family}: q8 error over the logits' spread: max {error.max():.4f}, {error.mean():.4f}")
    assert error.max() <= 0.15
    assert error.mean() <= 0.03


@pytest.mark.parametrize("family", FAMILIES)
def test_folders_made_by_hand_are_like_those_of_transformers(tmp_path: Path, family: str) -> None:
    save_pretrained(tmp_path / "theirs", family)
    save_by_hand(tmp_path / "ours", family)
    assert stored_names(tmp_path / "ours") == stored_names(tmp_path / "theirs")
    ours, theirs = (HuggingFaceModel(tmp_path / name).config for name in ("ours", "theirs"))
    spelt = [(tmp_path / name / "config.json").read_text() for name in ("ours", "theirs")]
    assert ["rope_parameters" in text for text in spelt] == [False, True]
    same = replace(theirs, name=ours.name, eos_token_ids=ours.eos_token_ids)
    assert ours == same


@pytest.mark.parametrize(
    ("family", "without"),
    [
        ("llama-3", {"rope_scaling": None}),
        ("qwen2", {"has_qkv_bias": False}),
        ("qwen3", {"has_qk_norms": False}),
        ("qwen3-vl", {"has_qk_norms": False}),
    ],
)
def test_what_makes_a_family_shows_in_its_logits(
    tmp_path: Path, family: str, without: dict[str, object]
) -> None:
    save_by_hand(tmp_path, family)
    model = HuggingFaceModel(tmp_path)
    whole = float_logits(model, IDS)
    model.config = replace(model.config, **without)  # type: ignore[arg-type]
    assert (float_logits(model, IDS) - whole).abs().max() > 0.1


def decoded(checkpoint: CheckpointSource, settings: Settings) -> tuple[list[int], list[int]]:
    decoder = Decoder(checkpoint, replace(settings, poison=True), 20)
    try:
        result = decoder.generate(IDS[:12], max_tokens=8, ignore_eos=True)
    finally:
        decoder.close()
    return result.token_ids, result.logits_crcs


@pytest.mark.parametrize("family", FAMILIES)
def test_a_window_over_the_kept_file_changes_no_bit(tmp_path: Path, family: str) -> None:
    save_by_hand(tmp_path / "model", family, shard_bytes=200_000)
    write_checkpoint(HuggingFaceModel(tmp_path / "model"), tmp_path / "model.q8.safetensors")
    checkpoint = open_checkpoint(tmp_path / "model.q8.safetensors")
    expected = decoded(checkpoint, Settings())
    for policy, keep, unit in (("past", 1, "slab"), ("pinned", 2, "entry"), ("lru", 2, "slab")):
        assert decoded(checkpoint, Settings(policy, keep, unit=unit)) == expected, policy


@pytest.mark.parametrize("family", FAMILIES)
def test_everything_of_a_family_survives_in_the_kept_file(tmp_path: Path, family: str) -> None:
    save_by_hand(tmp_path / "model", family, dtype=torch.bfloat16)
    made = quantized(HuggingFaceModel(tmp_path / "model"))
    write_checkpoint(HuggingFaceModel(tmp_path / "model"), tmp_path / "model.q8.safetensors")
    kept = open_checkpoint(tmp_path / "model.q8.safetensors")
    assert kept.config == made.config
    assert set(kept.fixed) == set(made.config.fixed_shapes())
    assert all(torch.equal(kept.fixed[name], made.fixed[name]) for name in made.fixed)
    assert all(torch.equal(a, b) for a, b in zip(kept.slabs, made.slabs, strict=True))
    assert kept.tokenizer.encode_chat("Hi") == made.tokenizer.encode_chat("Hi")


def test_decoding_stops_at_any_end_that_a_file_names(tmp_path: Path) -> None:
    save_by_hand(tmp_path, "qwen3-vl")
    checkpoint = quantized(HuggingFaceModel(tmp_path))
    assert checkpoint.config.eos_token_ids == (2, 0, 1)
    free = decoded(checkpoint, Settings())[0]
    ends = [token for token in dict.fromkeys(free[1:]) if token != free[0]][:2]
    assert ends
    for end in ends:
        config = json.loads((tmp_path / "config.json").read_text())
        config["text_config"]["eos_token_id"] = [1, end]
        (tmp_path / "config.json").write_text(json.dumps(config))
        decoder = Decoder(quantized(HuggingFaceModel(tmp_path)), Settings(), 20)
        token_ids = decoder.generate(IDS[:12], max_tokens=8).token_ids
        decoder.close()
        assert token_ids == free[: free.index(end) + 1]


def test_llama_3_puts_its_start_before_a_prompt_and_not_before_a_chat(tmp_path: Path) -> None:
    save_by_hand(tmp_path, "llama-3")
    path = tmp_path / "tokenizer.json"
    values = json.loads(path.read_text())
    values["post_processor"] = {  # as Llama 3's tokenizer.json has it
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            "<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}
        },
    }
    path.write_text(json.dumps(values))
    settings = {
        "chat_template": "{{ bos_token }}{{ messages[0].content }}",
        "bos_token": {"content": "<|endoftext|>", "lstrip": False},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = Tokenizer(HuggingFaceModel(tmp_path).tokenizer_file)
    assert tokenizer.encode("Hi")[0] == 0
    assert tokenizer.encode_chat("Hi") == tokenizer.encode("Hi")
