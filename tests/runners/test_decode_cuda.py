"""On a GPU, too, where a weight is never changes a result."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from memscope.analysis.timeline.read import read_timeline
from memscope.errors import OutOfMemory
from memscope.events import Kind
from memscope.reader.recording import open_recording
from memscope_runners.checkpoint.checkpoint import open_checkpoint
from memscope_runners.checkpoint.checkpoint_writer import write_checkpoint
from memscope_runners.checkpoint.fetch import open_model
from memscope_runners.checkpoint.synthetic import SyntheticModel
from memscope_runners.decode import Request, decode
from memscope_runners.decoder import Decoded, Decoder
from memscope_runners.memory.cuda_device import CudaDevice
from memscope_runners.memory.cuda_runtime import OUT_OF_MEMORY, CudaFailed, CudaRuntime
from memscope_runners.q8.weights import CheckpointSource
from memscope_runners.settings import Settings
from tests.fakes import ListRecorder
from tests.memscope.launch.programs import PYTHON, run_process
from tests.runners.decode_cases import outcome, windows
from tests.runners.memory.full_card import fill_card

pytestmark = pytest.mark.gpu

PROMPT = list(range(40, 52))
TOKENS = 6
ALLOCATORS = ("naive", "pool", "static", "async", "torch")
BASE = Settings(device="cuda", poison=True)


@pytest.fixture(scope="module")
def tiny() -> CheckpointSource:
    return open_model("synthetic:tiny")


@pytest.fixture(scope="module")
def expected(tiny: CheckpointSource) -> tuple[list[int], list[int]]:
    return outcome(run(tiny, BASE)[0])


def run(checkpoint: CheckpointSource, settings: Settings) -> tuple[Decoded, ListRecorder]:
    """Decodes, and compares the device's own count of bytes with the rows."""
    recorder: Any = ListRecorder()
    decoder = Decoder(checkpoint, settings, len(PROMPT) + TOKENS, recorder)
    try:
        decoded = decoder.generate(PROMPT, max_tokens=TOKENS, ignore_eos=True)
    finally:
        decoder.close()
    uploaded = sum(row.bytes or 0 for row in recorder.of(Kind.UPLOAD))
    assert uploaded == decoder.device.copied_bytes > 0
    assert decoder.device.allocated_bytes == 0
    return decoded, recorder


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_no_setting_changes_a_bit(tiny, expected, allocator):
    for (policy, keep), unit, prefetch in itertools.product(
        windows(tiny.config.layers), ("slab", "entry"), (False, True)
    ):
        settings = replace(
            BASE, policy=policy, keep=keep, allocator=allocator, unit=unit, prefetch=prefetch
        )
        assert outcome(run(tiny, settings)[0]) == expected, settings


def test_tokens_are_those_of_the_host(tiny, expected):
    decoder = Decoder(tiny, Settings(), len(PROMPT) + TOKENS)
    token_ids = decoder.generate(PROMPT, max_tokens=TOKENS, ignore_eos=True).token_ids
    decoder.close()
    assert token_ids == expected[0]


def test_recording_changes_no_bit(tiny, expected):
    settings = replace(BASE, policy="pinned", keep=3)
    decoder = Decoder(tiny, settings, len(PROMPT) + TOKENS)
    decoded = decoder.generate(PROMPT, max_tokens=TOKENS, ignore_eos=True)
    decoder.close()
    assert outcome(decoded) == expected


def test_streamed_slabs_are_pinned_and_released(tiny):
    _, recorder = run(tiny, replace(BASE, policy="past", keep=2))
    facts = {row.name: row.data for row in recorder.of(Kind.FACT)}
    assert facts["host"]["tier"] == "pinned"
    assert facts["host"]["pinned_bytes"] == tiny.config.layers * tiny.layer_layout.bytes
    assert facts["device.0"]["kind"] == "cuda"
    assert facts["link"]["copy_bytes"] == [tiny.layer_layout.bytes]
    assert facts["link"]["pinned_bytes_per_s"] > 0


def test_pinning_refused_falls_back_to_the_ring(tiny, expected, monkeypatch, capsys):
    def refuse(*_: object) -> None:
        raise CudaFailed("cudaHostRegister", OUT_OF_MEMORY)

    monkeypatch.setattr(CudaDevice, "pin", refuse)
    decoded, recorder = run(tiny, replace(BASE, policy="past", keep=2))
    assert outcome(decoded) == expected
    facts = {row.name: row.data for row in recorder.of(Kind.FACT)}
    assert facts["host"]["tier"] == "streamed"
    assert "cannot be pinned" in capsys.readouterr().err
    assert recorder.count(Kind.HOST_LOAD) > 0


@pytest.mark.parametrize("host_keep", [1, 2, 3, 6])
def test_slabs_in_the_file_go_through_the_ring(tmp_path, expected, host_keep):
    path = tmp_path / "tiny.q8.safetensors"
    write_checkpoint(SyntheticModel.named("synthetic:tiny"), path)
    settings = replace(BASE, policy="past", keep=2, host_keep=host_keep)
    decoded, recorder = run(open_checkpoint(path), settings)
    assert outcome(decoded) == expected
    assert recorder.count(Kind.HOST_LOAD) >= 6
    assert recorder.count(Kind.HOST_RELEASE) == recorder.count(Kind.HOST_LOAD)


def test_limit_below_the_minimum_is_out_of_memory(tiny):
    torch.cuda.empty_cache()
    limit = torch.cuda.memory_reserved() + (256 << 10)
    recorder: Any = ListRecorder()
    request = Request(tiny, replace(BASE, device_limit_bytes=limit), tuple(PROMPT), TOKENS)
    with pytest.raises(OutOfMemory, match="requested") as caught:
        decode(request, recorder=recorder)
    assert caught.value.exit_code == 4
    (oom,) = recorder.of(Kind.OOM)
    assert oom.data["limit"] == limit


@pytest.mark.gpu(alone=True)
def test_full_card_is_out_of_memory(tiny):
    runtime = CudaRuntime()
    runtime.new_stream()  # torch makes all of a kind at once, and they take memory
    fillers = fill_card(runtime)
    recorder: Any = ListRecorder()
    try:
        with pytest.raises(OutOfMemory) as caught:
            Decoder(tiny, BASE, tiny.config.context, recorder)  # its KV cache is 6 MiB
    finally:
        for address in fillers:
            runtime.free(address)
    assert caught.value.exit_code == 4
    (oom,) = recorder.of(Kind.OOM)
    assert oom.data["free"] < 16 << 20
    assert oom.data["limit"] == oom.data["total"]
    run(tiny, BASE)


@pytest.mark.gpu(alone=True)
def test_card_too_full_for_cuda_itself_is_out_of_memory(tmp_path):
    runtime = CudaRuntime()
    fillers = fill_card(runtime)
    words = ("decode", "--model", "synthetic:tiny", "--device", "cuda", "-o", "run.mscope", "Hi")
    try:
        ended = run_process([PYTHON, "-m", "memscope", *words], tmp_path)
    finally:
        for address in fillers:
            runtime.free(address)
    said = " ".join(ended.said)
    assert (ended.code, ended.err) == (4, "")
    assert "cuda:0 is so full that CUDA itself finds no room" in said
    assert "Traceback" not in said
    with open_recording(tmp_path / "run.mscope") as recording:
        assert len(read_timeline(recording).ooms) == 1


@pytest.mark.parametrize(
    "refused",
    [
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
    ],
    ids=["cublas", "triton"],
)
def test_library_that_runs_out_is_out_of_memory(tiny, monkeypatch, refused):
    recorder: Any = ListRecorder()
    decoder = Decoder(tiny, BASE, len(PROMPT) + TOKENS, recorder)

    def refuse(*_: object, **__: object) -> None:
        raise refused

    monkeypatch.setattr("memscope_runners.q8.cuda_ops.CudaOps.attention", refuse)
    with pytest.raises(OutOfMemory, match="a size that is not said requested"):
        decoder.generate(PROMPT, max_tokens=TOKENS)
    decoder.close()
    (oom,) = recorder.of(Kind.OOM)
    assert oom.bytes is None
    assert 0 < oom.data["free"] < oom.data["total"]
