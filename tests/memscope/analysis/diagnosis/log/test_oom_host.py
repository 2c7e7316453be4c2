"""Programs that the kernel killed, and /dev/shm that was full: host memory, with its numbers."""

from __future__ import annotations

import io

import pytest

from memscope.analysis.diagnosis.explanation import Explanation
from memscope.analysis.diagnosis.log.explain import explain_log
from memscope.cli.text.explanation import explanation_lines
from memscope.interop.oom_log.reader import read_log

GIB = 2**30
USAGE = "[12.1] memory: usage 16777216kB, limit 16777216kB, failcnt 123"
KILL = (
    "[12.2] {}ut of memory: Killed process 4211 ({}) total-vm:52428800kB, anon-rss:16252928kB, "
    "file-rss:1024kB, shmem-rss:262144kB, UID:0 pgtables:1kB oom_score_adj:0"
)
CGROUP = KILL.format("Memory cgroup o", "python")
DESCRIBE = """
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Wed, 11 Mar 2026 02:41:07 +0000
    Limits:
      cpu:             8
      memory:          {}
      nvidia.com/gpu:  1
    Requests:
      memory:          1Gi
"""


def explain(*lines: str) -> Explanation:
    return explain_log(read_log(io.BytesIO("\n".join(lines).encode())))


def settings(explanation: Explanation) -> str:
    return " ".join(each.setting for each in explanation.help)


def test_kernels_lines_give_limit_and_what_was_held() -> None:
    explanation = explain(USAGE, CGROUP)
    assert explanation.diagnosis == "not_device_memory"
    assert explanation.sizes_bytes == {"limit": 16 * GIB, "allocated": 15.75 * GIB}
    assert (
        "python (pid 4211) was killed at the container's memory limit of 16.00 GiB. It held "
        "15.75 GiB." in explanation.why
    )
    assert "a higher memory limit of the container" in settings(explanation)
    assert "refused" not in explanation.why


@pytest.mark.parametrize(
    ("printed", "limit"),
    [("16Gi", 16 * GIB), ("16384Mi", 16 * GIB), ("17179869184", 16 * GIB), ("16G", 16 * 10**9)],
)
def test_description_of_a_pod_gives_its_limit(printed: str, limit: int) -> None:
    explanation = explain(DESCRIBE.format(printed))
    assert explanation.sizes_bytes == {"limit": limit}
    assert "anon-rss" in " ".join(explanation.unknown)


def test_description_and_kernel_complete_each_other() -> None:
    for log in ((DESCRIBE.format("16Gi"), CGROUP), (CGROUP, DESCRIBE.format("16Gi"))):
        assert explain(*log).sizes_bytes == {"limit": 16 * GIB, "allocated": 15.75 * GIB}


def test_limit_of_the_next_container_is_not_taken() -> None:
    log = "Reason: OOMKilled\nsidecar:\n Container ID: x\n Limits:\n  memory: 64Mi\n"
    explanation = explain(log)
    assert explanation.sizes_bytes == {}
    assert "kubectl describe pod" in " ".join(explanation.unknown)


def test_whole_machine_has_no_limit_to_raise() -> None:
    explanation = explain(USAGE, KILL.format("O", "python"))
    assert explanation.sizes_bytes == {"allocated": 15.75 * GIB}
    assert "the machine had no memory left" in explanation.why
    assert "limit" not in settings(explanation)


def test_name_of_a_killed_program_stays_text() -> None:
    explanation = explain(KILL.format("Memory cgroup o", "\x1b[31m(evil)\u202e"))
    assert "\x1b" not in "\n".join(explanation_lines(explanation))
    assert "(pid 4211)" in explanation.why
    assert "(resolved)" in explain(KILL.format("O", "(resolved)")).why


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
        "shared memory (shm).",
        "RuntimeError: unable to write to file </torch_5123_1>",
    ],
)
def test_full_shared_memory_is_told(line: str) -> None:
    explanation = explain(line, "RuntimeError: DataLoader worker (pid(s) 4211) exited unexpectedly")
    assert explanation.diagnosis == "not_device_memory"
    assert "/dev/shm was full" in explanation.why
    assert "--shm-size" in settings(explanation)
    assert "/dev/shm" in settings(explanation)
