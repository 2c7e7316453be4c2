"""Hosts that pdsh writes before each line: told apart, and not seen in ordinary text."""

from __future__ import annotations

import io

import pytest

from memscope.analysis.diagnosis.log.explain import explain_log
from memscope.interop.oom_log.reader import LogFindings, read_log

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.15 GiB of which {}.00 GiB is free. Including non-PyTorch memory, this process "
    "has 78.00 GiB memory in use."
)
HOSTS = ["worker-1", "worker-0", "10.141.250.231", "gpu07.cluster.example.com"]


def read(*lines: str) -> LogFindings:
    return read_log(io.BytesIO("\n".join(lines).encode()))


def writers(*lines: str) -> list[str]:
    return [found.writer.name for found in read(*lines).findings]


def program(host: str, free: int) -> list[str]:
    text = ["step 1 loss 1.90", "Traceback (most recent call last):", "  File x", MESSAGE]
    return [f"{host}: {line}".format(free) for line in text]


@pytest.mark.parametrize("pod", ["", "[pod/launcher-x/main] "])
def test_ranks_behind_hosts_are_told_apart(pod: str) -> None:
    log = [
        f"{pod}{host}: [rank{8 * n}]: {MESSAGE}".format(n, n=n) for n, host in enumerate(HOSTS[:2])
    ]
    place = "launcher-x" if pod else None
    names = [f"{place or host}, rank {8 * n}" for n, host in enumerate(HOSTS[:2])]
    assert writers(*log) == names
    explanation = explain_log(read(*log))
    assert [failure.process for failure in explanation.failures] == names
    assert [failure.line for failure in explanation.failures] == [1, 2]
    assert "Earlier ones may have been caught" not in " ".join(explanation.notes)


def test_hosts_without_ranks_are_told_apart_line_by_line() -> None:
    programs = [program(host, 1) for host in HOSTS]
    mixed = [line for lines in zip(*programs, strict=True) for line in lines]
    launcher = ["[2026-01-01 00:00:00,000] [INFO] [runner.py:540:main] cmd = python"] * 3
    assert writers(*launcher, *mixed) == HOSTS
    assert writers(*(f"{host}: {MESSAGE}" for host in HOSTS[:2]), "") == HOSTS[:2]


def test_message_wrapped_behind_hosts_is_whole() -> None:
    text = MESSAGE.format(1)
    pieces = [text[start : start + 60] for start in range(0, len(text), 60)]
    log = [f"{host}: [rank{n}]: {piece}" for piece in pieces for n, host in enumerate(HOSTS)]
    found = read(*log).findings
    assert [each.message for each in found] == [read(text).findings[0].message] * len(HOSTS)


@pytest.mark.parametrize(
    "line",
    [
        "step1: CUDA out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: [rank3] CUDA out of memory. Tried to allocate 2.00 GiB",
        "llama_kv_cache_init: CUDA out of memory. Tried to allocate 2.00 GiB",
        "ERROR: CUDA out of memory. Tried to allocate 2.00 GiB",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "loss: 0.3 CUDA out of memory. Tried to allocate 2.00 GiB",
    ],
)
def test_words_before_a_colon_are_no_hosts(line: str) -> None:
    assert writers(line, line.replace("2.00", "3.00"), line.replace("2.00", "5.00")) == [""] * 3


def test_a_host_once_in_ordinary_text_is_none() -> None:
    log = ["starting", "h100: ok", f"h100: {MESSAGE.format(1)}", "done", "bye", "x", "y"]
    assert writers(*log) == [""]
