"""`memscope decode --model FOLDER`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memscope.cli import main
from tests.runners.checkpoint.family_files import save_by_hand

LOADED = {
    "llama-3": "Llama; 3 layers of 128; 4 heads and 2 key-value heads of 32; vocabulary 512;",
    "qwen2-tied": "Qwen2; 3 layers of 128; 4 heads and 2 key-value heads of 32; vocabulary 512, ti",
    "qwen3": "Qwen3; 3 layers of 128; 4 heads and 2 key-value heads of 64; vocabulary 512;",
    "qwen3-vl": "Qwen3-VL, its text tower; 3 layers of 128; 4 heads and 2 key-value heads of 64;",
}


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEMSCOPE_CACHE_DIR", str(tmp_path / "cache"))


def decode(folder: Path, *options: str) -> int:
    recording = str(folder.parent / "run.mscope")
    command = ["decode", "Hi", "--model", str(folder), "-o", recording, "--force", "--device=host"]
    return int(main([*command, "--max-tokens=3", *options]))


@pytest.mark.parametrize("family", LOADED)
def test_it_says_what_it_loaded(
    tmp_path: Path, family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save_by_hand(tmp_path / "model", family)
    assert decode(tmp_path / "model", "--keep=1", "--json") == 0
    shown = capsys.readouterr()
    assert f"memscope: model: {LOADED[family]}" in shown.err
    assert "context 256; " in shown.err
    assert len(json.loads(shown.out)["token_ids"]) >= 1


def test_a_family_that_it_does_not_know_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_by_hand(tmp_path / "model", "qwen3")
    path = tmp_path / "model" / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"model_type": "qwen3_moe", "architectures": ["Q3Moe"]}))
    assert decode(tmp_path / "model") == 2
    shown = capsys.readouterr().err
    assert "The architecture Q3Moe is not supported. Name a Llama, Qwen2, Qwen3 or" in shown
    assert not (tmp_path / "run.mscope").exists()


def test_a_chat_goes_through_the_model_s_own_template(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_by_hand(tmp_path / "model", "qwen3")
    assert decode(tmp_path / "model", "--chat", "--json") == 0
    prompt_ids = json.loads(capsys.readouterr().out)["prompt_ids"]
    assert prompt_ids[0] == 1  # <|im_start|>
    assert prompt_ids.count(2) == 1  # <|im_end|>
