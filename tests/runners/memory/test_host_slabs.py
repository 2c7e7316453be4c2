"""The slabs on the host: pinned without rounding, or through a small ring ahead of use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from memscope.events import Kind
from memscope_runners.checkpoint.checkpoint import Checkpoint, open_checkpoint
from memscope_runners.checkpoint.checkpoint_writer import write_checkpoint
from memscope_runners.checkpoint.fetch import open_model
from memscope_runners.checkpoint.synthetic import SyntheticModel
from memscope_runners.memory import host_slabs
from memscope_runners.memory.cuda_device import CudaDevice
from memscope_runners.memory.device import HostDevice
from memscope_runners.memory.host_slabs import (
    MappedSlabs,
    PinnedSlabs,
    StreamedSlabs,
    open_host_slabs,
)
from memscope_runners.memory.pages import is_of_file, release_pages
from tests.fakes import ListRecorder
from tests.runners.memory.fake_cuda import FakeRuntime

LAYERS = 6


@pytest.fixture(scope="module")
def in_memory() -> Any:
    return open_model("synthetic:tiny")


@pytest.fixture(scope="module")
def in_file(tmp_path_factory) -> Checkpoint:
    path = tmp_path_factory.mktemp("model") / "tiny.q8.safetensors"
    write_checkpoint(SyntheticModel.named("synthetic:tiny"), path)
    return open_checkpoint(path)


@dataclass
class Ring:
    """A ring over a checkpoint, and a device that copies from it."""

    checkpoint: Any
    device: Any
    keep: int

    def __post_init__(self) -> None:
        self.recorder: Any = ListRecorder()
        self.slabs = StreamedSlabs(self.checkpoint, self.device, self.keep, self.recorder)
        self.buffers = [
            self.device.malloc(self.checkpoint.layer_layout.bytes, "weights") for _ in range(LAYERS)
        ]

    def sweep(self, layers: range = range(LAYERS)) -> None:
        """Copies each layer into a buffer of its own; nothing waits for the copies."""
        for layer in layers:
            self.device.start_upload([(self.buffers[layer], self.slabs.slab(layer))], ahead=True)

    def check(self) -> None:
        self.device.mark_copies().wait()
        for layer, buffer in enumerate(self.buffers):
            expected = self.checkpoint.slab(layer)
            assert torch.equal(self.device.tensor(buffer), expected), layer

    def loaded(self) -> list[int]:
        return [row.layer for row in self.recorder.of(Kind.HOST_LOAD)]


@pytest.mark.parametrize("keep", [1, 2, 3, 6])
@pytest.mark.parametrize("make_device", [HostDevice, lambda: CudaDevice(runtime=FakeRuntime())])
def test_ring_hands_out_each_slab_whole_until_it_is_copied(in_file, make_device, keep):
    ring = Ring(in_file, make_device(), keep)
    for _ in range(2):
        ring.sweep()
        ring.check()
    ring.slabs.close()
    ring.device.close()


def test_ring_that_reuses_memory_too_early_would_be_seen(in_file, monkeypatch):
    ring = Ring(in_file, CudaDevice(runtime=FakeRuntime()), 2)
    monkeypatch.setattr(host_slabs.StreamedSlabs, "_finish_copies", lambda *_: None)
    ring.sweep()
    with pytest.raises(AssertionError):
        ring.check()
    ring.slabs.close()


def test_ring_reads_each_slab_once_a_sweep_and_the_next_one_ahead(in_file):
    ring = Ring(in_file, HostDevice(), 2)
    ring.slabs.slab(0)
    slot = ring.slabs._find(1)
    assert slot is not None
    ring.sweep(range(1, LAYERS))
    ring.sweep()
    ring.slabs.close()
    assert ring.loaded() == [*range(LAYERS), *range(LAYERS), 0]


def test_ring_learns_which_slab_comes_next(in_file):
    ring = Ring(in_file, HostDevice(), 2)
    for _ in range(3):
        for layer in (0, 2, 5):
            ring.slabs.slab(layer)
    assert ring.slabs._find(0) is not None
    ring.slabs.close()
    assert ring.loaded()[-4:] == [0, 2, 5, 0]  # the last one ahead


def test_ring_of_all_slabs_reads_each_once(in_file):
    ring = Ring(in_file, HostDevice(), LAYERS)
    for _ in range(3):
        ring.sweep()
    ring.check()
    ring.slabs.close()
    assert sorted(ring.loaded()) == list(range(LAYERS))


def test_pages_of_the_file_are_given_back(in_file):
    ring = Ring(in_file, HostDevice(), 2)
    ring.sweep()
    ring.check()
    ring.slabs.close()
    released = {row.layer: row.bytes for row in ring.recorder.of(Kind.HOST_RELEASE)}
    assert set(released) == set(range(LAYERS))
    size = in_file.layer_layout.bytes
    assert all(size - 8192 < freed <= size for freed in released.values())
    assert ring.slabs.facts()["is_file"]


def test_memory_that_is_no_file_is_never_given_back(in_memory):
    assert not is_of_file(in_memory.slab(0))
    ring = Ring(in_memory, HostDevice(), 2)
    ring.sweep()
    ring.sweep()
    ring.check()
    ring.slabs.close()
    assert ring.recorder.count(Kind.HOST_RELEASE) == 0


def test_released_pages_are_read_from_the_file_again(in_file):
    slab = in_file.slab(2)
    before = slab.clone()
    assert is_of_file(slab)
    assert 0 < release_pages(slab) <= slab.nbytes
    assert torch.equal(slab, before)


@pytest.mark.parametrize("model", ["in_memory", "in_file"])
def test_pinned_slabs_take_exactly_their_size(model, request):
    checkpoint = request.getfixturevalue(model)
    runtime, seen = FakeRuntime(), []
    device = CudaDevice(runtime=runtime)
    slabs = PinnedSlabs(checkpoint, device, lambda *progress: seen.append(progress))
    assert len(runtime.pinned) == LAYERS
    assert slabs.facts()["pinned_bytes"] == LAYERS * checkpoint.layer_layout.bytes
    assert seen == [("pinning slabs", done, LAYERS) for done in range(1, LAYERS + 1)]
    for layer in range(LAYERS + 1):
        assert torch.equal(slabs.slab(layer), checkpoint.slab(layer))
    slabs.close()
    assert runtime.pinned == set()


def test_large_slabs_in_ordinary_memory_are_pinned_where_they_lie(in_memory):
    large = torch.ones(2 << 20, dtype=torch.uint8)
    checkpoint = replace(in_memory, slabs=[large] * LAYERS + [in_memory.slab(LAYERS)])
    runtime = FakeRuntime()
    slabs = PinnedSlabs(checkpoint, CudaDevice(runtime=runtime))
    assert runtime.pinned == {large.data_ptr()}
    assert slabs.slab(3).data_ptr() == large.data_ptr()
    assert slabs.facts()["pinned_bytes"] == large.nbytes
    slabs.close()
    assert runtime.pinned == set()


def test_slabs_that_share_pages_are_pinned_apart(in_memory):
    whole = torch.arange(LAYERS * 3 << 19).to(torch.uint8)
    parts = list(whole.view(LAYERS, -1))
    checkpoint = replace(in_memory, slabs=[*parts, in_memory.slab(LAYERS)])
    runtime = FakeRuntime()
    runtime.already_pinned = {part.data_ptr() for part in parts[1:]}
    slabs = PinnedSlabs(checkpoint, CudaDevice(runtime=runtime))
    assert len(runtime.pinned) == LAYERS
    assert all(torch.equal(slabs.slab(layer), parts[layer]) for layer in range(LAYERS))
    slabs.close()


def test_refusal_half_way_leaves_nothing_pinned_and_takes_the_ring(in_file, capsys):
    runtime = FakeRuntime()
    runtime.pins_left = 4
    slabs = open_host_slabs(in_file, CudaDevice(runtime=runtime))
    assert isinstance(slabs, StreamedSlabs)
    facts = slabs.facts()
    assert facts["slabs"] == 3
    assert "cudaHostRegister" in facts["reason"]
    assert "cannot be pinned" in capsys.readouterr().err
    slabs.close()
    assert runtime.pinned == set()


def test_nothing_is_pinned_for_the_host_or_without_a_window(in_file):
    assert isinstance(open_host_slabs(in_file, HostDevice()), MappedSlabs)
    device = CudaDevice(runtime=FakeRuntime())
    assert isinstance(open_host_slabs(in_file, device, is_streaming=False), MappedSlabs)
