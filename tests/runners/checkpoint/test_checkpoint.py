"""The `.q8.safetensors` file."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from memscope.errors import MemscopeError
from memscope_runners.checkpoint.checkpoint import open_checkpoint, quantized, slab_name
from memscope_runners.checkpoint.checkpoint_writer import write_checkpoint
from memscope_runners.checkpoint.synthetic import TINY, SyntheticModel
from memscope_runners.checkpoint.tokenizer import TokenizerFile


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "tiny.q8.safetensors"
    write_checkpoint(SyntheticModel.named("synthetic:tiny-untied"), path)
    return path


def with_header(path: Path, target: Path, change: Callable[[dict[str, object]], None]) -> Path:
    """A copy of the file whose JSON header was changed."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    target.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    return target


def test_file_holds_what_memory_holds_bit_for_bit(written: Path) -> None:
    stored = open_checkpoint(written)
    made = quantized(SyntheticModel(stored.config))
    for layer in range(stored.config.layers + 1):
        assert torch.equal(stored.slab(layer), made.slab(layer))
    assert set(stored.fixed) == set(made.fixed)
    assert all(torch.equal(stored.fixed[name], made.fixed[name]) for name in made.fixed)
    assert stored.tokenizer.encode("Hello, été") == made.tokenizer.encode("Hello, été")


def test_slabs_are_mapped_on_their_boundary(written: Path) -> None:
    checkpoint = open_checkpoint(written)
    with open("/proc/self/maps") as maps:
        assert str(written) in maps.read()
    slabs = [checkpoint.slab(layer) for layer in range(checkpoint.config.layers + 1)]
    assert all(slab.data_ptr() % 256 == 0 for slab in slabs)


def test_any_safetensors_reader_opens_it(written: Path) -> None:
    config = open_checkpoint(written).config
    tensors = load_file(written)
    assert tensors[slab_name(config, 0)].shape == (config.layer_layout.bytes,)


@pytest.mark.parametrize("share", [0.0, 0.00001, 0.01, 0.3, 0.999999])
def test_a_truncated_file_is_one_error(written: Path, tmp_path: Path, share: float) -> None:
    raw = written.read_bytes()
    cut = tmp_path / "cut.q8.safetensors"
    cut.write_bytes(raw[: int(len(raw) * share)])
    with pytest.raises(MemscopeError, match="no whole q8 checkpoint"):
        open_checkpoint(cut)


def drop_config(header: dict[str, dict[str, object]]) -> None:
    del header["__metadata__"]["config"]


def lie_about_layers(header: dict[str, dict[str, object]]) -> None:
    config = json.loads(str(header["__metadata__"]["config"]))
    header["__metadata__"]["config"] = json.dumps(config | {"layers": config["layers"] + 1})


def break_tokenizer(header: dict[str, dict[str, object]]) -> None:
    header["__metadata__"]["tokenizer"] = json.dumps({"model": "{}", "chat_template": None})


def overflow_offset(header: dict[str, dict[str, object]]) -> None:
    header["slab.0"]["data_offsets"] = [0, 2**62]


def change_shape(header: dict[str, dict[str, object]]) -> None:
    header["norm"]["shape"] = [1, *header["norm"]["shape"]]  # type: ignore[misc]


def name_another_format(header: dict[str, dict[str, object]]) -> None:
    header["__metadata__"]["format"] = "something else"


def name_a_later_field(header: dict[str, dict[str, object]]) -> None:
    config = json.loads(str(header["__metadata__"]["config"]))
    header["__metadata__"]["config"] = json.dumps(config | {"rope_kind": "spiral"})


def break_rope_scaling(header: dict[str, dict[str, object]]) -> None:
    config = json.loads(str(header["__metadata__"]["config"]))
    header["__metadata__"]["config"] = json.dumps(config | {"rope_scaling": {"factor": 8.0}})


@pytest.mark.parametrize(
    "change",
    [
        drop_config,
        lie_about_layers,
        break_tokenizer,
        overflow_offset,
        change_shape,
        name_another_format,
        name_a_later_field,
        break_rope_scaling,
    ],
)
def test_a_malformed_header_is_one_error(
    written: Path, tmp_path: Path, change: Callable[[dict[str, object]], None]
) -> None:
    broken = with_header(written, tmp_path / "broken.q8.safetensors", change)
    with pytest.raises(MemscopeError, match=r"broken\.q8\.safetensors"):
        open_checkpoint(broken)


def forget_what_came_later(header: dict[str, dict[str, object]]) -> None:
    metadata = header["__metadata__"]
    config, tokenizer = (json.loads(str(metadata[name])) for name in ("config", "tokenizer"))
    for name in ("rope_scaling", "family"):
        del config[name]
    del tokenizer["special_tokens"]
    metadata |= {"config": json.dumps(config), "tokenizer": json.dumps(tokenizer)}


def test_a_file_kept_before_the_families_were_is_read(written: Path, tmp_path: Path) -> None:
    older = with_header(written, tmp_path / "older.q8.safetensors", forget_what_came_later)
    kept, now = open_checkpoint(older), open_checkpoint(written)
    assert kept.config == now.config
    assert kept.tokenizer.encode_chat("Hi") == now.tokenizer.encode_chat("Hi")
    assert all(torch.equal(a, b) for a, b in zip(kept.slabs, now.slabs, strict=True))


def test_random_bytes_and_nothing_are_one_error(tmp_path: Path) -> None:
    path = tmp_path / "noise.q8.safetensors"
    path.write_bytes(bytes(range(256)) * 20)
    with pytest.raises(MemscopeError):
        open_checkpoint(path)
    with pytest.raises(MemscopeError, match="does not exist"):
        open_checkpoint(tmp_path / "missing.q8.safetensors")


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(MemscopeError, match="cannot be written"):
            write_checkpoint(SyntheticModel(TINY), tmp_path / "tiny.q8.safetensors")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


class WatchedModel(SyntheticModel):
    """Notes how long the file is whenever a layer's first weight is asked for."""

    folder: Path
    lengths: list[int]

    def tensor(self, name: str) -> torch.Tensor:
        if name.endswith(".q"):
            self.lengths.append(max(path.stat().st_size for path in self.folder.iterdir()))
        return super().tensor(name)


def test_each_slab_is_written_before_the_next_is_read(tmp_path: Path) -> None:
    model = WatchedModel(TINY)
    object.__setattr__(model, "folder", tmp_path)
    object.__setattr__(model, "lengths", [])
    write_checkpoint(model, tmp_path / "tiny.q8.safetensors")
    slab_bytes = TINY.layer_layout.bytes
    assert len(model.lengths) == TINY.layers
    assert all(length >= layer * slab_bytes for layer, length in enumerate(model.lengths))


def test_progress_counts_every_slab(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    write_checkpoint(
        SyntheticModel(TINY), tmp_path / "tiny.q8.safetensors", lambda *call: seen.append(call)
    )
    slabs = TINY.layers + 1
    assert seen == [("quantize", done, slabs) for done in range(slabs + 1)]


class MalformedTokenizer(SyntheticModel):
    @property
    def tokenizer_file(self) -> TokenizerFile:
        return TokenizerFile("{}", None)


def test_a_malformed_tokenizer_is_found_before_the_long_work(tmp_path: Path) -> None:
    seen: list[str] = []
    model, path = MalformedTokenizer(TINY), tmp_path / "tiny.q8.safetensors"
    with pytest.raises(MemscopeError, match="tokenizer is malformed"):
        write_checkpoint(model, path, lambda what, *_: seen.append(what))
    assert seen == []
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_permission_is_not_said_to_be_missing(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError  # as safetensors does, whatever open(2) said

    monkeypatch.setattr("memscope_runners.checkpoint.checkpoint.safe_open", refuse)
    with pytest.raises(MemscopeError, match="cannot be read"):
        open_checkpoint(written)
