"""Control groups, pinned memory, KV caches, and what a device is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memscope.analysis.limits.limits import parse_limits
from memscope.analysis.metrics.measure import measure
from memscope.analysis.timeline.read import read_timeline
from memscope.events import Kind
from memscope.probes import host
from memscope.probes.cgroup import CgroupProbe, find_group
from memscope.probes.host import HostProbe
from memscope.probes.torch.context import measure_context
from memscope.probes.torch.device import DeviceProbe
from memscope.probes.torch.pinned import PinnedProbe
from memscope.probes.watch.kv_cache import KvCacheProbe
from memscope.reader.recording import Recording
from tests.fakes import FakeTorch, ListRecorder

GIB = 1 << 30
STATUS = "Name:\tpython\nVmPeak:\t9999 kB\nVmHWM:\t {peak} kB\nVmRSS:\t {now} kB\nThreads:\t2\n"


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def read(probe: Any, times: int = 1) -> ListRecorder:
    recorder = ListRecorder()
    for _ in range(times):
        probe(recorder)
    return recorder


def facts(recorder: ListRecorder) -> dict[Any, Any]:
    return {row.name: row.data for row in recorder.of(Kind.FACT)}


def samples(recorder: ListRecorder) -> dict[Any, Any]:
    return {(row.name, row.device): row.bytes for row in recorder.of(Kind.SAMPLE)}


def version_2(tmp_path: Path) -> tuple[Path, Path]:
    own = tmp_path / "cgroup"
    own.write_text("0::/app/worker\n")
    root = tmp_path / "fs"
    write(root / "app", memory__max=2 * GIB, memory__current=3 * 10**8)
    (root / "app" / "memory.events").write_text("low 0\nhigh 4\nmax 7\noom 1\noom_kill 1\n")
    write(root / "app" / "worker", memory__max="max", memory__current=10**8)
    return root, own


def test_the_lowest_limit_on_the_way_up_is_the_one_that_counts(tmp_path):
    root, own = version_2(tmp_path)
    recorder = read(CgroupProbe(str(root), str(own)))
    assert facts(recorder)["cgroup"] == {"version": 2, "limit_bytes": 2 * GIB}
    assert facts(recorder)["cgroup.events"] == {"high": 4, "max": 7, "oom": 1, "oom_kill": 1}
    assert samples(recorder) == {("cgroup.used_bytes", -1): 3 * 10**8}


@pytest.fixture
def status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What /proc says of this process, on a clock that goes on by a second with each look."""
    path, now = tmp_path / "status", iter(range(0, 10**12, 10**9))
    monkeypatch.setattr(host, "STATUS", path)
    monkeypatch.setattr(host.time, "perf_counter_ns", lambda: next(now))
    return path


def test_a_host_peak_between_two_readings_is_told_where_it_is_of_the_recording(status: Path):
    """Again with each later reading: segments that hold the first of them may be removed."""
    probe, recorder = HostProbe(), ListRecorder()
    for now, peak in ((3, 8), (3, 8), (4, 9), (4, 9), (9, 9)):
        status.write_text(STATUS.format(now=now, peak=peak))
        probe(recorder)
    found = [(row.name, row.bytes >> 10) for row in recorder.of(Kind.SAMPLE)]
    assert [size for name, size in found if name == "host.rss_bytes"] == [3, 3, 4, 4, 9]
    assert [size for name, size in found if name == "host.peak_rss_bytes"] == [9, 9, 9]


def test_a_host_peak_that_the_program_has_set_back_counts_from_there(status: Path):
    probe, recorder = HostProbe(), ListRecorder()
    for now, peak in ((3, 8), (3, 3), (3, 3), (3, 5)):
        status.write_text(STATUS.format(now=now, peak=peak))
        probe(recorder)
    found = [row.bytes >> 10 for row in recorder.of(Kind.SAMPLE) if "peak" in row.name]
    assert found == [5]


def test_what_the_process_may_map_is_a_fact_that_follows_changes(
    status: Path, monkeypatch: pytest.MonkeyPatch
):
    limits = iter((6 * GIB, 6 * GIB, -1))  # RLIM_INFINITY is -1
    monkeypatch.setattr(host.resource, "getrlimit", lambda _: (next(limits), -1))
    status.write_text(STATUS.format(now=3, peak=8))
    found = [row.data for row in read(HostProbe(), 3).of(Kind.FACT) if row.name == "host.limits"]
    assert found == [{"address_space_bytes": 6 * GIB}, {"address_space_bytes": None}]


def test_limit_of_a_shell_is_read():
    code = "from memscope.probes.host import address_space_limit as read; print(read())"
    command = f"ulimit -v 6000000; exec {sys.executable} -c '{code}'"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 6_000_000 << 10


def test_a_kernel_that_names_no_peak_gives_readings_and_one_without_any_stops_it(status: Path):
    probe, recorder = HostProbe(), ListRecorder()
    status.write_text("Name:\tpython\nVmRSS:\t 5 kB\n")
    probe(recorder)
    assert samples(recorder) == {("host.rss_bytes", -1): 5 << 10}
    status.write_text("Name:\tpython\n")
    with pytest.raises(OSError, match="does not say"):
        probe(recorder)


@pytest.mark.parametrize("probe", [HostProbe, PinnedProbe])
def test_a_reading_that_waits_long_delays_no_other(monkeypatch: pytest.MonkeyPatch, probe: Any):
    """The recorder's thread waits for Python's lock, as beside an import: 2 s in each reading."""
    now_ns = [0]

    def wait(*_: object) -> Any:
        now_ns[0] += 2_000_000_000
        return b"VmRSS:\t 5 kB\n" if probe is HostProbe else {"allocated_bytes": {"current": 5}}

    torch = FakeTorch()
    torch._C._cuda_hostMemoryStats = wait
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(host, "read_kernel_file", wait)
    monkeypatch.setattr(f"{probe.__module__}.time.perf_counter_ns", lambda: now_ns[0])
    reading, recorder = probe(), ListRecorder()
    for _ in range(5):
        reading(recorder)
        now_ns[0] += 250_000_000
    assert recorder.count(Kind.SAMPLE) == 5


SPIKE = """
import sys
import memscope
with memscope.record(sys.argv[1]) as recorder:
    assert recorder.flush(300), "the first readings"
    bytes(bytearray(256 << 20))
"""


def test_host_peak_counts_what_no_reading_saw(tmp_path: Path):
    path = tmp_path / "spike.mscope"
    subprocess.run([sys.executable, "-c", SPIKE, str(path)], check=True, timeout=300)
    with Recording(path) as recording:
        found = measure(read_timeline(recording), parse_limits(["host.rss_bytes.end <= 1 GiB"]))
    peak, end = found["host.peak_bytes"].value, found["host.rss_bytes.end"].value
    assert peak is not None
    assert end is not None
    assert peak > end + (512 << 20) * 0.98


def test_a_group_is_read_once_a_second_and_its_events_said_when_they_change(tmp_path, monkeypatch):
    root, own = version_2(tmp_path)
    now = [100.0]
    monkeypatch.setattr("memscope.probes.cgroup.time.monotonic", lambda: now[0])
    probe, recorder = CgroupProbe(str(root), str(own)), ListRecorder()
    for at in (100.0, 100.5, 101.1, 102.2):
        now[0] = at
        probe(recorder)
    assert recorder.count(Kind.SAMPLE) == 3
    assert recorder.count(Kind.FACT) == 2


def test_version_1_writes_a_huge_number_where_there_is_no_limit(tmp_path):
    own = tmp_path / "cgroup"
    own.write_text("5:cpu,cpuacct:/\n4:memory:/job\n0::/\n")
    folder = tmp_path / "fs" / "memory" / "job"
    write(folder, memory__limit_in_bytes=9223372036854771712, memory__usage_in_bytes=5)
    write(folder, memory__failcnt=3, memory__oom_control="oom_kill_disable 0\noom_kill 2")
    group = find_group(tmp_path / "fs", own)
    assert (group.version, group.limit_bytes, group.read_used()) == (1, None, 5)
    assert group.read_events() == {"max": 3, "oom_kill": 2}
    write(folder, memory__limit_in_bytes=GIB)
    assert find_group(tmp_path / "fs", own).limit_bytes == GIB


def test_no_group_is_an_error_that_stops_the_probe(tmp_path):
    own = tmp_path / "cgroup"
    own.write_text("0::/\n")
    with pytest.raises(OSError, match="control group"):
        read(CgroupProbe(str(tmp_path), str(own)))


@pytest.mark.parametrize("is_nested", [True, False])
def test_pinned_bytes_of_torch_versions_with_and_without_pools(monkeypatch, is_nested):
    torch = FakeTorch()
    held, used = {"current": 64, "peak": 64}, {"current": 32, "peak": 64}
    counters = {"allocated_bytes": held, "active_bytes": used}
    nested = {key: {"all": value} for key, value in counters.items()}
    torch._C._cuda_hostMemoryStats = lambda: nested if is_nested else counters
    monkeypatch.setitem(sys.modules, "torch", torch)
    found = samples(read(PinnedProbe()))
    assert found == {("host.pinned_bytes", -1): 64, ("host.pinned_used_bytes", -1): 32}


def test_an_old_torch_does_not_count_pinned_memory(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", FakeTorch())
    recorder = read(PinnedProbe(), times=3)
    assert not samples(recorder)
    assert recorder.count(Kind.FACT) == 1


def test_kv_caches_are_counted_while_they_live():
    torch = pytest.importorskip("torch")
    cache_utils = pytest.importorskip("transformers.cache_utils")
    original = cache_utils.Cache.__init__
    probe = KvCacheProbe()
    assert samples(read(probe)) == {}
    cache = cache_utils.DynamicCache()
    cache.update(torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 5, 4), 0)
    key = ("model.kv_bytes", -1)
    assert samples(read(probe)) == {key: 2 * 40 * 4}
    del cache
    assert samples(read(probe)) == {key: 0}
    probe.close()
    assert cache_utils.Cache.__init__ is original


def test_a_device_is_described_once_it_is_used(monkeypatch):
    torch = FakeTorch(devices=2)
    properties = SimpleNamespace(name="H200", total_memory=1000, uuid="0a")
    torch.cuda.get_device_properties = lambda device: properties
    torch.cuda.get_per_process_memory_fraction = lambda device: 0.5
    torch.cuda.get_allocator_backend = lambda: "native"
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    found = facts(read(DeviceProbe(), times=2))
    assert set(found) == {"torch.version", "cuda.0", "torch.allocator"}
    assert found["cuda.0"]["limit_bytes"] == 500
    assert found["torch.allocator"]["is_expandable"]


def test_a_context_that_cannot_be_measured_says_why():
    pytest.importorskip("torch")
    if __import__("torch").cuda.is_available():
        pytest.skip("there is a device here")
    recorder = ListRecorder()
    assert measure_context(recorder) is None  # type: ignore[arg-type]
    assert facts(recorder)["context.0"]["reason"]
