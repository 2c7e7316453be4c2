"""Messages read back from logs of every format, however they are wrapped and mixed."""

from __future__ import annotations

import io
import random
import time
import tracemalloc
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memscope.interop.oom_log.formats.message import Refusal
from memscope.interop.oom_log.formats.registry import FORMATS
from memscope.interop.oom_log.formats.torch_message import TorchMessage
from memscope.interop.oom_log.reader import LogFindings, read_log
from memscope.interop.oom_log.search import BLOCK_BYTES
from memscope.interop.oom_log.sizes import Size
from tests.memscope.interop.oom_log.messages import (
    EXAMPLE,
    FORMS,
    Amounts,
    cached_form,
    half_digit,
    pools_form,
    reserved_form,
    retry_form,
    sizes_bytes,
)
from tests.paths import DATA

CASES = sorted((DATA / "oom").glob("*.txt"))
GIB = 2**30
_FIELDS = {"private": "private_pools"}


def read(text: str) -> LogFindings:
    return read_log(io.BytesIO(text.encode()))


def message_in(text: str) -> TorchMessage:
    reading = read(text)
    found = reading.findings[-1] if reading.findings else reading.last_retry
    assert found is not None
    assert isinstance(found.message, TorchMessage)
    return found.message


def refusal_in(text: str) -> Refusal:
    (found,) = read(text).findings
    assert isinstance(found.message, Refusal)
    return found.message


def assert_amounts(message: TorchMessage, expected: Amounts, names: tuple[str, ...]) -> None:
    for name in names:
        true = getattr(expected, name)
        value = getattr(message, _FIELDS.get(name, name))
        if name == "device":
            assert value == true
            continue
        assert isinstance(value, Size), name
        parts = (expected.allocated, expected.cached) if name == "reserved" else ()
        slack = half_digit(true) + sum(map(half_digit, parts)) + 2
        assert abs(value.bytes - true) <= slack, f"{name}: {value.bytes} of {true}"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@given(expected=sizes_bytes)
@settings(max_examples=60, deadline=None)
def test_every_format_round_trips(form: Callable[[Amounts], str], expected: Amounts) -> None:
    assert_amounts(message_in(form(expected)), expected, FORMS[form])


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
@given(expected=sizes_bytes, width=st.integers(24, 100), rank=st.integers(0, 4000))
@settings(max_examples=25, deadline=None)
def test_wrapped_with_rank_prefixes_it_is_the_same(
    form: Callable[[Amounts], str], expected: Amounts, width: int, rank: int
) -> None:
    text = form(expected).replace("\n", " ")
    pieces = [text[start : start + width] for start in range(0, len(text), width)]
    wrapped = "\n".join(f"[rank{rank}]: {piece}" for piece in pieces)
    assert message_in(wrapped) == message_in(form(expected))


@given(expected=sizes_bytes, end=st.integers(0, 900))
@settings(max_examples=100, deadline=None)
def test_cut_text_gives_only_amounts_that_it_has(expected: Amounts, end: int) -> None:
    reading = read(pools_form(expected)[:end])
    for found in reading.findings:
        assert isinstance(found.message, TorchMessage)
        for name in ("requested", "total", "free", "allocated"):
            value = getattr(found.message, name)
            true = getattr(expected, name)
            assert value is None or abs(value.bytes - true) <= half_digit(true) + 2


def test_ranks_between_each_other_are_kept_apart() -> None:
    texts = {0: pools_form(EXAMPLE).split(". "), 1: reserved_form(EXAMPLE).split("; ")}
    lines = []
    for row in range(max(map(len, texts.values()))):
        for rank, separator in ((0, ". "), (1, "; ")):
            if row < len(texts[rank]):
                lines.append(f"[rank{rank}]: {texts[rank][row]}{separator}")
    found = read("\n".join(lines)).findings
    assert [each.message for each in found] == [
        message_in(pools_form(EXAMPLE)),
        message_in(reserved_form(EXAMPLE)),
    ]


@pytest.mark.parametrize(
    "prefix",
    [
        "[rank0]: ",
        "(EngineCore_DP0 pid=1094) ERROR 07-08 01:30:59 [core.py:387] ",
        "[vllm]                 | ERROR 06-02 05:17:18 [core.py:387] ",
        "2026-04-19 12:21:55.609 | ",
        "2026-04-19T12:21:55.609123456Z stderr F ",
        "\x1b[31m[1,0]<stderr>: \x1b[0m",
        "# ",
        "\t> ",
    ],
)
def test_loggers_prefixes_do_not_matter(prefix: str) -> None:
    text = pools_form(EXAMPLE)
    lines = [f"{prefix}{text[start : start + 70]}" for start in range(0, len(text), 70)]
    assert message_in("\n".join(lines)) == message_in(text)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace(" ", "\u00a0"),
        lambda text: f'{{"level": "error", "message": "x\\n{text}\\nException raised from"}}',
        lambda text: f"100%|####| 3/4 [00:02]\r{text}\r",
        lambda text: f"OutOfMemoryError('{text}')",
    ],
    ids=["windows", "no-break spaces", "json", "progress bar", "repr"],
)
def test_the_same_message_in_other_clothes(change: Callable[[str], str]) -> None:
    assert message_in(change(pools_form(EXAMPLE))) == message_in(pools_form(EXAMPLE))


def test_utf16_of_a_windows_shell_is_read() -> None:
    text = reserved_form(EXAMPLE)
    (found,) = read_log(io.BytesIO(text.encode("utf-16"))).findings
    assert found.message == message_in(text)


def test_message_across_the_border_of_a_block_is_whole() -> None:
    text = pools_form(EXAMPLE)
    for ahead in (5, len(text) // 2, len(text) - 5):
        filler = "x" * 99 + "\n"
        head = (filler * (BLOCK_BYTES // len(filler) + 1))[: BLOCK_BYTES - ahead - 1] + "\n"
        assert message_in(head + text + "\n" + filler * 3) == message_in(text)


def test_messages_are_told_apart_and_repeats_are_one() -> None:
    first, second = cached_form(EXAMPLE), reserved_form(EXAMPLE).replace("GPU 3", "GPU 4")
    reading = read("\n".join([first, first, "Traceback (most recent call last):", second]))
    assert [found.line for found in reading.findings] == [1, 4]
    assert reading.count == 2


def test_sentinel_of_nvml_is_no_process() -> None:
    text = "this process has 17179869184.00 GiB memory in use"
    wsl = message_in(pools_form(EXAMPLE).replace("Process 6513 has 79.00 GiB memory in use", text))
    assert wsl.process is None
    assert wsl.has_unreadable_process
    assert not wsl.other_processes


def test_retries_are_counted_not_taken_for_failures() -> None:
    reading = read("\n".join([retry_form(EXAMPLE)] * 5))
    assert reading.retries == 5
    assert reading.findings == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("RuntimeError: CUDA error: out of memory", "bare"),
        ("RuntimeError: HIP error: out of memory", "bare"),
        ("RuntimeError: Triton Error [CUDA]: out of memory", "bare"),
        ("RuntimeError: CUDA driver error: out of memory", "bare"),
        ("RuntimeError: CUDA driver error: device not ready", "hidden"),
        ("RuntimeError: !handles_.at(i) INTERNAL ASSERT FAILED at", "hidden"),
        ("cublasCreate failed: CUBLAS_STATUS_ALLOC_FAILED", "bare"),
        ("NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at", "nvml"),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory.", "bare"),
        ("Got CUDA out of memory at step 3", "bare"),
        ("we caught CUDA out of memory, halving the batch", "bare"),
        ("ERROR training failed with CUDA out of memory", "bare"),
        ("Capture cuda graph failed: CUDA out of memory. Possible solutions:", "bare"),
        ("raise: we could not handle it: CUDA out of memory", "bare"),
        ("torch.OutOfMemoryError: CUDA out of memory recovery failed", "bare"),
        ("cublasCreate(handle): CUBLAS_STATUS_ALLOC_FAILED", "bare"),
        ("DefaultCPUAllocator: not enough memory: you tried to allocate 64 bytes.", "host"),
        ("cuda runtime error (2) : out of memory at /pytorch/aten/THCStorage.cu:58", "bare"),
    ],
)
def test_errors_without_amounts_have_a_kind(text: str, kind: str) -> None:
    assert message_in(text).kind == kind


@pytest.mark.parametrize(
    "text",
    [
        "    except torch.cuda.OutOfMemoryError:",
        '    if "CUDA out of memory" in str(e):',
        "INFO If out-of-memory error occurs during cudagraph capture, consider decreasing it",
        "We handle CUDA out of memory by halving batch.",
        "If you encounter CUDA out of memory errors, lower the batch size.",
        "INFO a larger cache may cause a CUDA out of memory error",
        "activation checkpointing is on to avoid possible CUDA out of memory",
        "WARNING In case of HIP out of memory, restart with --small",
        "CUDA out of memory handler installed",
        "gpu memory allocated: 10.21 GiB, 3.00 GiB free",
        'raise ValueError("To serve at least one request with the models\'s max seq len "',
        "KV cache memory: 10 GiB",
    ],
)
def test_source_and_chatter_are_no_messages(text: str) -> None:
    assert read(text).findings == []


def test_options_and_accounts_of_the_program_are_known() -> None:
    reading = read(
        "INFO non-default args: {'gpu_memory_utilization': 0.9, 'max_num_seqs': 64}\n"
        "vllm serve x --max-model-len 4096 --kv-cache-dtype=fp8 --enforce-eager\n"
        "Model loading took 61.25 GiB memory and 11.4 seconds\n"
        "Available KV cache memory: -0.3 GiB\n"
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:64\n"
        "torch==2.6.0+cu124\n"
    )
    context = reading.context
    assert context.server == "vllm"
    assert context.option("gpu_memory_utilization") == 0.9
    assert context.option("max_num_seqs") == 64
    assert context.options["enforce_eager"] == "True"
    assert context.options["kv_cache_dtype"] == "fp8"
    assert context.accounts["weights"].bytes == round(61.25 * GIB)
    assert context.accounts["kv"].bytes == round(-0.3 * GIB)
    assert context.settings == "expandable_segments:True,max_split_size_mb:64"
    assert context.torch_version == (2, 6, 0)


def test_hint_of_the_message_is_no_setting() -> None:
    assert read(pools_form(EXAMPLE)).context.settings == ""


amount = st.integers(1, 9999).map(lambda hundredths: hundredths / 100)
tokens = st.integers(1, 2_000_000)


@given(free=amount, total=amount, share=st.integers(1, 99), wanted=amount, device=st.booleans())
@settings(max_examples=60, deadline=None)
def test_refusal_for_free_memory_round_trips(
    free: float, total: float, share: int, wanted: float, device: bool
) -> None:
    refusal = refusal_in(
        f"ValueError: Free memory on device {'cuda:5 ' if device else ''}({free}/{total} GiB) on "
        f"startup is less than desired GPU memory utilization ({share / 100}, {wanted} GiB)."
    )
    assert refusal.device == (5 if device else None)
    assert refusal.share == share / 100
    for size, true in ((refusal.free, free), (refusal.total, total), (refusal.requested, wanted)):
        assert size is not None
        assert abs(size.bytes - true * GIB) <= 1


@given(length=tokens, needed=amount, available=amount, fitting=tokens)
@settings(max_examples=60, deadline=None)
def test_refusal_for_kv_cache_round_trips(
    length: int, needed: float, available: float, fitting: int
) -> None:
    refusal = refusal_in(
        f"(EngineCore pid=9) ValueError: To serve at least one request with the models's max seq "
        f"len ({length}), ({needed} GiB KV cache is needed, which is larger than the available KV "
        f"cache memory ({available} GiB). Based on the available memory, the estimated maximum "
        f"model length is {fitting}. Try increasing `gpu_memory_utilization`"
    )
    assert (refusal.wanted_count, refusal.fitting_count) == (length, fitting)
    assert refusal.requested is not None
    assert refusal.available is not None
    assert abs(refusal.requested.bytes - needed * GIB) <= 1
    assert abs(refusal.available.bytes - available * GIB) <= 1


@given(wanted=tokens, fitting=tokens)
@settings(max_examples=30, deadline=None)
def test_refusals_that_count_round_trip(wanted: int, fitting: int) -> None:
    texts = {
        "tokens": f"ValueError: The model's max seq len ({wanted}) is larger than the maximum "
        f"number of tokens that can be stored in KV cache ({fitting}). Try increasing",
        "sequences": f"ValueError: max_num_seqs ({wanted}) exceeds available Mamba cache blocks "
        f"({fitting}). Each decode sequence",
        "slots": f"Prefill out of memory. Try to lower your batch size.\nTry to allocate {wanted} "
        f"tokens.\nAvailable tokens: {fitting} (available_size=1 + evictable_size=2)\n",
    }
    for kind, text in texts.items():
        refusal = refusal_in(text)
        assert (refusal.kind, refusal.wanted_count, refusal.fitting_count) == (
            kind,
            wanted,
            fitting,
        )


def test_other_refusals_are_known() -> None:
    assert refusal_in("ValueError: No available memory for the cache blocks. Try").kind == "no_kv"
    sglang = refusal_in(
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current "
        "value: mem_fraction_static=0.6"
    )
    assert (sglang.server, sglang.share) == ("sglang", 0.6)
    unbalanced = refusal_in(
        "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        "pre_model_load_memory=147.9, local_gpu_memory=176.2, local_gpu_memory * 0.9=158.6"
    )
    assert unbalanced.free == Size(round(147.9 * GIB), 0.05 * GIB)
    warmup = refusal_in(
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests"
    )
    assert (warmup.kind, warmup.wanted_count) == ("warmup", 256)
    changed = refusal_in(
        "AssertionError: Error in memory profiling. Initial free memory 49586110464, current free "
        "memory 75894423552. This happens"
    )
    assert changed.available == Size(75894423552)


def mutate(text: str, source: random.Random) -> bytes:
    """``text`` with a few pieces of it changed, doubled, swapped or taken out."""
    data = bytearray(text.encode())
    for _ in range(source.randint(1, 12)):
        if not data:
            break
        start = source.randrange(len(data))
        end = min(start + source.choice((1, 2, 8, 64)), len(data))
        action = source.randrange(5)
        if action == 0:
            del data[start:end]
        elif action == 1:
            data[start:end] = bytes(source.randrange(256) for _ in range(end - start))
        elif action == 2:
            data[start:start] = data[start:end] * source.choice((1, 3, 40))
        elif action == 3:
            data[start:end] = b"9" * source.choice((1, 25, 400))
        else:
            data[start:start] = source.choice(
                (b"\n", b"\r", b"\x1b[31m", b"\x00", b"[rank1]: ", b"GiB", b"-", b"(", b" nan ")
            )
    return bytes(data)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_mutated_messages_are_read_without_an_error(path: Path) -> None:
    source = random.Random(path.name)
    text = path.read_text()
    for _ in range(25):
        read_log(io.BytesIO(mutate(text, source)))


class Endless(io.RawIOBase):
    """``unit`` again and again, ``size`` bytes of it, made as they are read."""

    def __init__(self, unit: bytes, size: int) -> None:
        self._block = unit * (BLOCK_BYTES // len(unit) + 1)
        self._left = size

    def read(self, size: int = -1) -> bytes:
        taken = min(size, self._left, len(self._block))
        self._left -= taken
        return self._block[:taken]


@pytest.mark.parametrize(
    "unit",
    [
        *(b"1", b"\n", b"CUDA out of memory. Tried ", b"(" * 99 + b"\n", b"2026-01-01 00:00:00 | "),
        *(b"Memory on the node was 1", b"error: n: tasks 1,1,1: Out Of Memory "),
    ],
    ids=["one line", "blank", "no end", "brackets", "prefixes", "node", "tasks"],
)
def test_time_is_linear_in_the_size_of_hostile_logs(unit: bytes) -> None:
    def seconds(size: int) -> float:
        start = time.process_time()
        read_log(Endless(unit, size))  # type: ignore[arg-type]
        return time.process_time() - start

    seconds(1 << 20)
    small, large = min(seconds(1 << 20) for _ in range(2)), seconds(4 << 20)
    assert large < 8 * small + 0.3, f"{small:.3f} s for 1 MiB, {large:.3f} s for 4 MiB"


def test_messages_on_one_line_cost_no_more_than_on_lines_of_their_own() -> None:
    def seconds(end: bytes) -> float:
        log = (b"CUDA out of memory. Tried to" + end) * 4000
        start = time.process_time()
        read_log(io.BytesIO(log))
        return time.process_time() - start

    alone = min(seconds(b"\n") for _ in range(2))
    together = min(seconds(b" ") for _ in range(2))
    assert together < alone, f"{together:.3f} s together, {alone:.3f} s alone"


def test_memory_is_flat_in_the_size_of_the_log() -> None:
    unit = b"[rank3]: step 12 loss 1.5\n" * 900 + pools_form(EXAMPLE).encode() + b"\n"

    def peak(size: int) -> int:
        tracemalloc.start()
        try:
            read_log(Endless(unit, size))  # type: ignore[arg-type]
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    small, large = peak(3 << 20), peak(12 << 20)
    assert large < 1.2 * small, f"{small / 2**20:.1f} MiB for 3 MiB, {large / 2**20:.1f} for 12"


@pytest.mark.parametrize("name", [each.name for each in FORMATS])
def test_every_format_has_an_explainer(name: str) -> None:
    assert callable(import_module(f"memscope.analysis.diagnosis.log.{name}").explain)
