"""Pods that stern writes before each line: told apart, and not seen in ordinary text."""

from __future__ import annotations

import io

import pytest

from memscope.interop.oom_log.reader import LogFindings, read_log

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.15 GiB of which {}.00 GiB is free."
)
ORDINALS = [f"trainer-worker-{rank}" for rank in range(3)]
HASHES = [f"trainer-7d9f8b6c4-x2k{rank}q" for rank in range(3)]
DRAWN = [f"trainer-{name}" for name in ("x7k2q", "bcdfg", "zz24z")]


def read(*lines: str) -> LogFindings:
    return read_log(io.BytesIO("\n".join(lines).encode()))


def writers(*lines: str) -> list[str]:
    return [found.writer.name for found in read(*lines).findings]


def program(prefix: str, free: int) -> list[str]:
    text = ["step 1 loss 1.90", "Traceback (most recent call last):", "  File x", MESSAGE]
    return [f"{prefix} {line}".format(free) for line in text]


@pytest.mark.parametrize("between", [" ", " › "])
@pytest.mark.parametrize("pods", [ORDINALS, HASHES, DRAWN])
def test_pods_of_ordinary_lines_are_told_apart(pods: list[str], between: str) -> None:
    programs = [program(f"{pod}{between}pytorch", 1) for pod in pods]
    mixed = [line for lines in zip(*programs, strict=True) for line in lines]
    assert writers(*mixed) == pods


@pytest.mark.parametrize("between", [" ", " › "])
@pytest.mark.parametrize("namespace", ["team-a", "team-7", "default"])
@pytest.mark.parametrize("pods", [ORDINALS, HASHES, DRAWN])
def test_namespaces_stand_before_their_pods(pods: list[str], namespace: str, between: str) -> None:
    programs = [program(f"{namespace} {pod}{between}pytorch", 1) for pod in pods]
    mixed = [line for lines in zip(*programs, strict=True) for line in lines]
    assert writers(*mixed) == [f"{namespace}/{pod}" for pod in pods]


def test_pods_of_one_name_in_two_namespaces_are_two() -> None:
    log = [line for name in ("a", "b") for line in program(f"{name} trainer-0 main", 1)]
    assert writers(*log) == ["a/trainer-0", "b/trainer-0"]


def test_container_that_looks_like_a_pod_is_a_container() -> None:
    lines = ["loads 3 shards", "step 1 loss 1.90", "starts", MESSAGE.format(1)]
    log = [f"{pod} vllm-0 {line}" for line in lines for pod in ORDINALS]
    assert writers(*log) == ORDINALS


@pytest.mark.parametrize("before", ["", "team-a "])
def test_rank_behind_one_container_is_enough(before: str) -> None:
    (name,) = writers("starts", f"{before}trainer-0 main [rank3]: {MESSAGE.format(1)}")
    assert name == f"{before.strip()}/trainer-0, rank 3".removeprefix("/")


def test_pod_and_rank_of_one_line_are_both_told() -> None:
    log = [line for pod in ORDINALS for line in program(f"{pod} pytorch [rank7]:", 1)]
    assert writers(*log) == [f"{pod}, rank 7" for pod in ORDINALS]


def test_messages_alone_are_told_apart_by_their_column() -> None:
    assert writers(*(f"{pod} main {MESSAGE.format(1)}" for pod in ORDINALS)) == ORDINALS


def test_coloured_pods_are_told_apart() -> None:
    log = [
        f"\x1b[36m{line.replace(' main ', f'{chr(27)}[0m {chr(27)}[32mmain{chr(27)}[0m ', 1)}"
        for pod in ORDINALS
        for line in program(f"{pod} main", 1)
    ]
    assert writers(*log) == ORDINALS


def test_message_broken_over_lines_of_pods_is_whole() -> None:
    log = []
    for line in MESSAGE.format(1).split(". "):
        log += [f"{pod} main {line}. " for pod in ORDINALS[:2]]
    found = read(*log).findings
    assert [each.writer.name for each in found] == ORDINALS[:2]
    assert {each.message.total is not None for each in found} == {True}


@pytest.mark.parametrize(
    "line",
    [
        "step-{} loss is 1.9",
        "epoch-{} done in 4 s",
        "gpt-2 weights are read",
        "worker-{}: alive",
        "INFO worker-{} is alive",
        "Worker-{} main is alive",
        "chat-completion request came",
        "a-b c d",
    ],
)
def test_ordinary_text_is_no_pod(line: str) -> None:
    text = ["a log begins", *(line.format(i) for i in range(2)), "and goes on", "in this way", ""]
    assert writers(*text, f"gpt-2 model {MESSAGE.format(1)}") == [""]
    assert writers(*(line.format(i) for i in range(9) if "{" in line), MESSAGE.format(1)) == [""]


def test_one_line_like_a_pod_is_none() -> None:
    assert writers(f"trainer-0 main {MESSAGE.format(1)}") == [""]
    assert writers("trainer-0 main starts", f"trainer-1 failed {MESSAGE.format(1)}") == [""]
