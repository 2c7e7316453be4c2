"""GGUF files of the Llama family."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memscope.errors import MemscopeError
from memscope_runners.checkpoint.gguf import GgufModel, unpermute
from memscope_runners.checkpoint.synthetic import TINY, SyntheticModel, byte_tokenizer
from memscope_runners.checkpoint.tokenizer import Tokenizer
from tests.runners.checkpoint.model_files import permute, save_gguf

Kind = gguf.GGMLQuantizationType


@given(st.integers(1, 6), st.integers(1, 8))
def test_the_permutation_is_undone(heads: int, pairs: int) -> None:
    weight = torch.arange(heads * pairs * 2 * 3).view(-1, 3)
    assert torch.equal(unpermute(permute(weight, heads), heads), weight)


def test_interleaved_pairs_become_halves() -> None:
    stored = torch.tensor([[0], [2], [1], [3]])  # one head: rows of a pair side by side
    assert unpermute(stored, 1).flatten().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "bound"), [(Kind.F32, 0), (Kind.F16, 5e-4), (Kind.Q8_0, 5e-3), (Kind.Q4_1, 9e-2)]
)
def test_tensors_come_out_as_they_went_in(tmp_path: Path, kind: Kind, bound: float) -> None:
    save_gguf(tmp_path / "tiny.gguf", kind=kind)
    stored, made = GgufModel(tmp_path / "tiny.gguf"), SyntheticModel(TINY)
    for name in ("layers.0.q", "layers.5.k", "layers.3.down", "lm_head", "norm"):
        assert (stored.tensor(name) - made.tensor(name)).abs().max() <= bound


def test_config_and_tokenizer_come_from_the_metadata(tmp_path: Path) -> None:
    save_gguf(tmp_path / "tiny.gguf")
    model = GgufModel(tmp_path / "tiny.gguf")
    assert (model.config.layers, model.config.kv_heads, model.config.is_tied) == (6, 2, True)
    assert model.config.eos_token_ids == (0,)
    tokenizer = Tokenizer(model.tokenizer_file)
    assert tokenizer.encode("The rest") == byte_tokenizer(512).encode("The rest").ids
    assert tokenizer.encode("<|im_end|>") == [2]


def test_a_chat_template_writes_the_files_special_tokens(tmp_path: Path) -> None:
    save_gguf(tmp_path / "tiny.gguf")
    tokenizer = Tokenizer(GgufModel(tmp_path / "tiny.gguf").tokenizer_file)
    assert tokenizer.encode_chat("Hi") == [1, *tokenizer.encode("Hi"), 0]


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.002, 0.01, 0.5, 0.999])
def test_a_truncated_file_is_one_error(tmp_path: Path, share: float) -> None:
    save_gguf(tmp_path / "tiny.gguf")
    raw = (tmp_path / "tiny.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(raw[: int(len(raw) * share)])
    with pytest.raises(MemscopeError, match="no whole GGUF file"):
        GgufModel(tmp_path / "cut.gguf")


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    save_gguf(tmp_path / "mamba.gguf", architecture="mamba")
    with pytest.raises(MemscopeError, match="architecture mamba is not supported"):
        GgufModel(tmp_path / "mamba.gguf")


def test_what_is_not_a_gguf_file_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "noise.gguf").write_bytes(b"not a model" * 50)
    with pytest.raises(MemscopeError, match="no whole GGUF file"):
        GgufModel(tmp_path / "noise.gguf")
