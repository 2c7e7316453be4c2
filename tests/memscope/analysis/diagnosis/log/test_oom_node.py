"""Slurm, a kubelet or Ray ended the program: host memory, with its numbers and what helps there."""

from __future__ import annotations

import io

import pytest

from memscope.analysis.diagnosis.explanation import Explanation
from memscope.analysis.diagnosis.log.explain import explain_log
from memscope.cli.text.explanation import explanation_lines
from memscope.interop.oom_log.reader import read_log

GIB, MIB = 2**30, 2**20
STEP = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=1234.batch. Some of the step tasks "
    "have been OOM Killed."
)
OLD_STEP = (
    "slurmstepd: error: Detected 26362 oom-kill event(s) in step 370626.batch cgroup. Some of your "
    "processes may have been killed by the cgroup out-of-memory handler."
)
TASK = "srun: error: node01: task 3: Out Of Memory"
EVICTED = (
    "  Warning  Evicted  2m  kubelet  The node was low on resource: memory. Threshold quantity: "
    "100Mi, available: 61440Ki. Container {} was using 61Gi, request is 32Gi, has larger "
    "consumption of memory. Container sidecar was using 188Ki, request is 0, has larger "
    "consumption of memory."
)
KILLED = "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."
NODE = (
    "Memory on the node (IP: 10.0.62.231, ID: e5d953ef) where the task (task ID: 43534ce9, "
    "name=allocate_memory, pid=11362, memory used=1.25GB) was running was 27.71GB / 28.80GB "
    "(0.962273), which exceeds the memory usage threshold of 0.95. Ray killed this worker (ID: "
    "6f2ec5c8) because it was the most recently scheduled task; to see more information about "
    "memory usage on this node, use `ray logs raylet.out -ip 10.0.62.231`."
)
RAYLET = (
    "(raylet) Task _map_task failed due to oom. There are infinite oom retries remaining, so the "
    "task will be retried. Error: 1 worker(s) were killed due to the node running low on memory. "
    "Memory on the node (IP: 10.0.50.112, ID: 4cb25bc0) was 28.62GB / 30.00GB (0.954017), which "
    "exceeds the memory usage threshold of 0.950000; Object store memory usage: [- objects "
    "spillable: 0; - bytes spillable: 0;]; Ray killed 1 worker(s) based on the killing policy"
)
SUMMARY = (
    "(raylet) [2026-03-01 10:00:00,000 E 9 9] (raylet) node_manager.cc:3193: 2 Workers (tasks / "
    "actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node"
)


def explain(*lines: str) -> Explanation:
    return explain_log(read_log(io.BytesIO("\n".join(lines).encode())))


def settings(explanation: Explanation) -> str:
    return " ".join(each.setting for each in explanation.help)


def unknown(explanation: Explanation) -> str:
    return " ".join(explanation.unknown)


def test_slurm_names_task_node_and_job() -> None:
    for log in ((STEP, TASK), (TASK, STEP)):
        explanation = explain(*log)
        assert explanation.diagnosis == "not_device_memory"
        assert "at the job's memory limit" in explanation.why
        assert "sacct -j 1234 " in unknown(explanation)
        assert settings(explanation).startswith("sbatch --mem=")
    assert "Slurm killed task 3 on node01" in explain(STEP, TASK).why


@pytest.mark.parametrize(
    ("line", "name", "job"),
    [
        (TASK, "task 3 on node01", "JOB"),
        ("srun: error: gpu-7.cluster: tasks 0-2,5: Out Of Memory", "task 0-2,5 on gpu-7.", "JOB"),
        (STEP, "job 1234", "1234"),
        (OLD_STEP, "job 370626", "370626"),
        (STEP.replace("1 oom_kill event", "2 oom_kill events"), "job 1234", "1234"),
        (f"slurmstepd-node7: error: {STEP.partition('error: ')[2]}", "job 1234", "1234"),
    ],
)
def test_each_line_of_slurm_is_enough(line: str, name: str, job: str) -> None:
    explanation = explain("epoch 1", line)
    assert f"not GPU memory: Slurm killed {name}" in explanation.why
    assert f"sacct -j {job} " in unknown(explanation)


def test_tasks_of_two_jobs_have_no_one_number() -> None:
    other = STEP.replace("1234", "99")
    assert "sacct -j JOB " in unknown(explain(STEP, other, TASK))


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: node01: task 3: Exited with exit code 1",
        "we tell: task 3: Out Of Memory",
        "error: Out Of Memory",
        "Exception in thread main java.lang.Exception: task 3: OutOfMemoryHandler",
        "The node was low on resource: ephemeral-storage. Threshold quantity: 2727346284, "
        "available: 432908Ki. Container a was using 20Ki, request is 0, has larger consumption",
    ],
)
def test_other_ends_are_not_of_memory(line: str) -> None:
    assert explain(line).diagnosis is None


def test_evicted_pod_has_its_amounts_and_the_nodes() -> None:
    explanation = explain(EVICTED.format("train"))
    assert explanation.diagnosis == "not_device_memory"
    assert explanation.sizes_bytes == {"allocated": 61 * GIB, "free": 60 * MIB}
    assert "60.00 MiB was left, and the kubelet keeps 100.00 MiB" in explanation.why
    assert "container train held 61.00 GiB and had requested 32.00 GiB" in explanation.why
    assert "resources.requests.memory" in settings(explanation)


def test_eviction_that_an_older_kubelet_tells() -> None:
    explanation = explain(
        "Message: The node was low on resource: memory. Container httpd-container was using "
        "4395616Ki, which exceeds its request of 15Mi."
    )
    assert explanation.sizes_bytes == {"allocated": 4395616 * 1024}
    assert "httpd-container held 4.19 GiB and had requested 15.00 MiB" in explanation.why
    assert explain("The node was low on resource: memory.").sizes_bytes == {}


def test_memory_monitor_of_ray_gives_the_nodes_amounts() -> None:
    explanation = explain(KILLED, "", KILLED.partition(": ")[2], NODE)
    assert explanation.diagnosis == "not_device_memory"
    assert explanation.sizes_bytes == {
        "total": round(28.80 * GIB),
        "free": round(28.80 * GIB) - round(27.71 * GIB),
        "limit": pytest.approx(28.80 * 0.95 * GIB, abs=1),
        "allocated": 1.25 * GIB,
    }
    assert "27.71 GiB of 28.80 GiB was in use on the node" in explanation.why
    assert "above the threshold of 0.95" in explanation.why
    assert "task allocate_memory (pid 11362), which held 1.25 GiB" in explanation.why
    assert "RAY_memory_usage_threshold higher" in settings(explanation)
    assert "CUDA_LAUNCH_BLOCKING" not in settings(explanation)
    assert "-ip 10.0.62.231" in unknown(explanation)
    assert not [note for note in explanation.notes if "different messages" in note]


def test_raylets_own_line_is_read_whatever_follows() -> None:
    for log in ((RAYLET,), (RAYLET, SUMMARY), (SUMMARY, RAYLET)):
        explanation = explain(*log)
        assert "28.62 GiB of 30.00 GiB was in use" in explanation.why
        assert explanation.sizes_bytes["total"] == 30 * GIB
        assert "allocated" not in explanation.sizes_bytes
    assert "a worker" in explain(SUMMARY).why


def test_memory_of_a_node_is_no_size_of_a_card() -> None:
    reading = read_log(io.BytesIO(f"{RAYLET}\nstep\nRuntimeError: CUDA error: x".encode()))
    budget = (
        "vllm (gpu_memory_utilization=0.9) To serve at least one request with the models's max seq "
        "len (40960), (10.00 GiB KV cache is needed, which is larger than the available KV cache "
        "memory (8.00 GiB)."
    )
    explanation = explain(budget)
    assert reading.count == 2
    assert settings(explain(f"{RAYLET}\n{budget}")) == settings(explanation)


def test_names_from_the_log_stay_text() -> None:
    hostile = NODE.replace("allocate_memory", "\x1b[31mevil\u202e")
    lines = explanation_lines(explain(KILLED, hostile))
    assert all(line.isprintable() for line in lines)
    assert "(pid 11362)" in "\n".join(lines)


def test_impossible_quantities_are_absent() -> None:
    huge = EVICTED.format("train").replace("61Gi", f"{'9' * 18}Ti")
    assert explain(huge).sizes_bytes["allocated"] == 188 * 1024
    more = NODE.replace("27.71GB", "99.00GB")
    assert "free" not in explain(KILLED, more).sizes_bytes


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("Error out of memory at line 380 in file /src/csrc/pythonInterface.c", None),
        ("n1:303:306 [3] include/alloc.h:178 NCCL WARN Cuda failure 2 'out of memory'", None),
        (
            "n1:303:306 [3] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes",
            6 * MIB,
        ),
        ("Last error:\nFailed to CUDA calloc async 608 bytes", 608),
    ],
)
def test_libraries_beside_torch_are_told(line: str, asked: int | None) -> None:
    explanation = explain("step 1", line)
    assert explanation.diagnosis == "unknown"
    assert explanation.sizes_bytes == ({"requested": asked} if asked else {})
    assert "library outside torch's allocator" in explanation.why
    assert ("prints no number" in explanation.why) == (asked is None)
    assert ("how much was requested" in unknown(explanation)) == (asked is None)
