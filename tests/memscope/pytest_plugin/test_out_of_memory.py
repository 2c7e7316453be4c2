"""A test that runs out of memory, and what a failure says of who held it."""

from __future__ import annotations

import pytest

from tests.memscope.pytest_plugin.program import RunTests, kept_recordings, limited

HOST_DEVICE = (
    "def hold(sizes=(600, 300, 90)):\n"
    "    recorder = memscope.active_recorder()\n"
    "    recorder.fact('device.0', {'name': 'fake', 'kind': 'host', 'total_bytes': 4096,\n"
    "                               'limit_bytes': 2048})\n"
    "    for size in sizes:\n"
    "        recorder.emit(Kind.DEVICE_MALLOC, bytes=size, name='weight_pool')\n"
    "    recorder.sample('device.allocated_bytes', bytes=sum(sizes), step=0)\n"
    "    recorder.emit(Kind.STEP, 0, duration_ns=1000)\n"
)
OUT = (
    "class OutOfMemoryError(RuntimeError):\n    pass\n"
    "MESSAGE = ('CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of '\n"
    "           '79.10 GiB of which 1.05 GiB is free. Of the allocated memory 76.00 GiB is '\n"
    "           'allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated.')\n"
)


def test_failure_names_holders_and_ledger(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    result = run_tests(HOST_DEVICE + limited("memory.peak_bytes <= 900 B", "hold()"))
    result.assert_outcomes(failed=1)
    (recording,) = kept_recordings(pytester)
    result.stdout.fnmatch_lines(
        [
            "memscope: memory.peak_bytes = 990 B, limit <= 900 B*",
            "largest holders at the peak",
            "  990 B  *",
            "ledger: device, fake, by the program, at *",
            "  limit of this host device *2.00 KiB",
            "*  free *1.03 KiB",
            f"memscope: recording kept at {recording}",
        ]
    )


def test_torch_error_is_explained_from_its_text(
    run_tests: RunTests, pytester: pytest.Pytester
) -> None:
    result = run_tests(
        OUT + limited("driver.calls_per_step == 0", "raise OutOfMemoryError(MESSAGE)")
    )
    result.assert_outcomes(failed=1)
    (recording,) = kept_recordings(pytester)
    result.stdout.fnmatch_lines(
        [
            "*OutOfMemoryError: CUDA out of memory*",
            "*would help (and what it frees)",
            f"memscope: recording kept at {recording}",
        ]
    )
    result.stdout.no_fnmatch_line("*limit == 0*")


def test_recorded_error_is_explained_from_the_recording(run_tests: RunTests) -> None:
    emit = (
        "    GIB = 1 << 30\n"
        "    metrics = dict(free=GIB, allocated=70 * GIB, reserved=71 * GIB, total=80 * GIB)\n"
        "    memscope.active_recorder().emit(\n"
        "        Kind.OOM, 3, bytes=2 * GIB, data={'scope': 'engine', **metrics})\n"
        "    raise MemoryError"
    )
    body = limited("driver.calls_per_step == 0", f"hold()\n{emit}")
    result = run_tests(HOST_DEVICE + body)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["Fragmentation: * was requested on fake (80.00 GiB)*", "memscope: recording kept at *"]
    )


def test_plain_memory_error_stands(run_tests: RunTests, pytester: pytest.Pytester) -> None:
    result = run_tests(limited("driver.calls_per_step == 0", "bytearray(1 << 62)"))
    result.assert_outcomes(failed=1)
    (recording,) = kept_recordings(pytester)
    result.stdout.fnmatch_lines(["*MemoryError*", f"memscope: recording kept at {recording}"])
