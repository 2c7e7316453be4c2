"""A recorder whose recording goes on in segments: killed, followed, out of disk, signalled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memscope.errors import MemscopeError
from memscope.events import Kind
from memscope.reader.chain import Chain
from memscope.reader.recording import Recording, open_recording
from memscope.reader.run_files import find_run
from memscope.recorder.recorder import Recorder
from memscope.recorder.segments import Segments

pytestmark = pytest.mark.slow

AHEAD = 3000  # rows, some four segments, that may be written before a follower has seen them

# Segments of 32 KiB, some a second; the number of a row stands in its bytes. Who holds its stdin
# lets it go on, by a line for each 1000 rows seen.
PROGRAM = (
    "import os, sys, time, memscope\n"
    "import memscope.recorder.recorder as writer, memscope.recorder.retention as retention\n"
    "writer.FLUSH_ROWS = 256\n"
    "retention.LEAST_BYTES = 1 << 15\n"
    "with memscope.Recorder(sys.argv[1], keep_last='256KiB') as rec:\n"
    "    print('go', flush=True)\n"
    "    for number in range(int(sys.argv[2])):\n"
    "        rec.emit(4, number // 100, 1, os.urandom(16).hex(), number)\n"
    "        if number % 20 == 0: time.sleep(0.002)\n"
    "        if number % 1000 == 0 and number >= AHEAD: sys.stdin.readline()\n"
).replace("AHEAD", str(AHEAD))


def start(path: Path, rows: int, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, str(path), str(rows)]
    process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "go\n"
    return process


def await_files(path: Path, count: int) -> None:
    """Until so many segments of the recording lie beside each other."""
    deadline = time.monotonic() + 60
    while len(list(path.parent.glob(f"{path.stem}.*"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_kill_9_at_random_moments_of_a_chain_loses_at_most_a_second(tmp_path: Path) -> None:
    generator, rolls = random.Random(3), 0
    for number in range(10):
        path = tmp_path / f"{number}.mscope"
        with start(path, 10**9) as process:
            started = time.monotonic()
            await_files(path, 4)
            time.sleep(generator.uniform(0.1, 2.1))
            lived = time.monotonic() - started
            process.kill()
        with Recording(path) as recording:
            assert recording.state.name == "cut"
            last = [batch["t_ns"].max() for batch in recording.batches()][-1]
            rolls += recording.header.segment.number - 1
        assert lived - last / 1e9 <= 1.0, f"run {number}: lost too much"
        assert sum(each.stat().st_size for each in tmp_path.glob(f"{number}.*")) <= 1 << 18
    assert rolls > 20


def test_a_segment_opens_at_every_moment_of_a_roll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on disk before each step that could be the last one is a recording."""
    path = tmp_path / "run.mscope"
    seen: list[tuple[str, str, int]] = []

    def looked_at(name: str) -> None:
        step = getattr(os, name)

        def look_first(*args: object) -> None:
            with Recording(path) as recording:
                seen.append((name, recording.state.name, recording.state.rows))
            step(*args)

        monkeypatch.setattr(os, name, look_first)

    segments = Segments(path, 1 << 18, 0)
    for name in ("link", "replace"):
        looked_at(name)
    for number in range(90):
        row = (number, Kind.UPLOAD, 0, 1, None, 1, *[None] * 4, -1, -1, -1, -1)
        segments.write([(*row[:4], os.urandom(400).hex(), *row[5:])] * 20)
    assert [name for name, _, _ in seen] == ["link", "replace"] * (len(seen) // 2)
    assert len(seen) > 8
    assert {state for _, state, _ in seen} <= {"running", "complete"}
    assert all(left[2] == right[2] for left, right in zip(seen[::2], seen[1::2], strict=True))


def read_numbers(chain: Chain) -> list[int]:
    """Of the rows that became whole since the last time; -1 for rows of the recorder's own."""
    return [number for piece in chain.poll() for number in chain.read(piece)["bytes"].tolist()]


def test_a_follower_goes_on_across_segments_and_misses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.mscope"
    total = 24_000
    seen: list[int] = []
    told = 0
    with start(path, total, subprocess.PIPE) as process, Chain(path, is_followed=True) as chain:
        assert process.stdin is not None
        while process.poll() is None:
            seen += read_numbers(chain)
            if told < min(len(seen), total - AHEAD) // 1000:
                print(file=process.stdin, flush=True)
                told += 1
            time.sleep(0.01)
        while found := read_numbers(chain):
            seen += found
        assert chain.header.segment.number > 8, "so that segments were thinned and removed"
        assert not chain.is_replaced
        state = chain.state()
    uploads = [number for number in seen if number >= 0]
    assert uploads == list(range(total))
    assert (state.name, state.removed_rows, state.lost_rows) == ("complete", 0, 0)
    with open_recording(path) as recording:
        assert recording.state.name == "complete"
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= 1 << 18


def test_a_full_disk_during_a_roll_stops_the_recording_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("memscope.recorder.retention.LEAST_BYTES", 1 << 15)

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("link", "replace", "rename"):
        monkeypatch.setattr(os, name, no_room)
    path = tmp_path / "run.mscope"
    recorder = Recorder(path, keep_last="256KiB")
    for _ in range(40):
        recorder.emit(Kind.UPLOAD, name=os.urandom(2000).hex())
    assert not recorder.flush(10.0)
    recorder.close()
    assert "No space left on device" in capfd.readouterr().err
    with Recording(path) as recording:
        assert recording.state.name == "cut"
        facts = [batch.name(0) for batch in recording.batches()][-1]
    assert facts == "recorder.stopped"
    assert list(tmp_path.iterdir()) == [path]


def test_a_recording_that_was_moved_stops_at_its_next_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("memscope.recorder.retention.LEAST_BYTES", 1 << 15)
    recorder = Recorder(tmp_path / "run.mscope", keep_last="256KiB")
    (tmp_path / "run.mscope").rename(tmp_path / "kept.mscope")
    (tmp_path / "run.mscope").write_text("of somebody else")
    for _ in range(40):
        recorder.emit(Kind.UPLOAD, name=os.urandom(2000).hex())
    assert not recorder.flush(10.0)
    recorder.close()
    assert "moved, removed or replaced" in capfd.readouterr().err
    assert (tmp_path / "run.mscope").read_text() == "of somebody else"
    assert Recording(tmp_path / "kept.mscope").state.name == "cut"


def test_a_program_may_go_to_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memscope.recorder.retention.LEAST_BYTES", 1 << 15)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with Recorder("run.mscope", keep_last="256KiB") as recorder:
        monkeypatch.chdir(tmp_path / "other")
        for _ in range(40):
            recorder.emit(Kind.UPLOAD, name=os.urandom(2000).hex())
        assert recorder.flush(10.0)
    assert list((tmp_path / "other").iterdir()) == []
    with Recording(tmp_path / "run.mscope") as recording:
        assert (recording.state.name, recording.header.segment.number) == ("complete", 2)


def test_force_removes_the_older_segments_with_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.mscope"
    with start(path, 6000) as process:
        assert process.wait() == 0
    assert len(list(tmp_path.iterdir())) > 2
    Recorder(path, force=True).close()
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_lists_each_process_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSCOPE_RUN_ID", "one")
    names = ["run.mscope", "run.4321.mscope"]
    processes = [start(tmp_path / name, 6000) for name in names]
    assert [process.wait() for process in processes] == [0, 0]
    assert len(list(tmp_path.iterdir())) > 6
    for argument in (tmp_path / "run.mscope", tmp_path):
        assert sorted(path.name for path in find_run(argument).paths) == sorted(names)


@pytest.mark.parametrize("text", ["1MiB", "nothing", "-3", "0", "8 furlongs"])
def test_a_size_that_makes_no_sense_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(MemscopeError, match="keep_last="):
        Recorder(tmp_path / "run.mscope", keep_last=text)
    assert list(tmp_path.iterdir()) == []


def test_keep_last_all_never_begins_a_next_segment(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run.mscope", keep_last="all") as recorder:
        assert recorder._segments._retention is None
    assert list(tmp_path.iterdir()) == [tmp_path / "run.mscope"]


USES = {
    "unused": ("", True),
    "a handler": ("signal.signal(signal.SIGUSR2, lambda *_: None)", False),
    "ignored": ("signal.signal(signal.SIGUSR2, signal.SIG_IGN)", False),
    "C code": ("import faulthandler; faulthandler.register(signal.SIGUSR2)", False),
}


@pytest.mark.parametrize("use", USES)
def test_sigusr2_pins_where_the_program_has_no_use_for_it(tmp_path: Path, use: str) -> None:
    before, is_ours = USES[use]
    script = (
        "import os, signal, sys, memscope\n"
        f"{before}\n"
        "recorder = memscope.Recorder(sys.argv[1])\n"
        "os.kill(os.getpid(), signal.SIGUSR2)\n"
        "child = os.fork()\n"
        "if not child: signal.signal(signal.SIGUSR1, signal.getsignal(signal.SIGUSR2)); os._exit(\n"
        "    signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "before = signal.getsignal(signal.SIGUSR2)\n"
        "recorder.close()\n"
        "print(signal.getsignal(signal.SIGUSR2) is before)\n"
    )
    path = tmp_path / "run.mscope"
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with Recording(path) as recording:
        marks = [batch.name(row) for batch in recording.batches() for row in batch.where(31)]
    assert marks == (["SIGUSR2"] if is_ours else [])
    left_alone = use in ("unused", "C code")  # Python's table knows nothing of faulthandler
    assert done.stdout == f"{int(left_alone)}\n{not is_ours}\n"


def test_sigusr2_ends_a_program_again_whose_recorder_another_thread_closed(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, threading, memscope\n"
        "recorder = memscope.Recorder(sys.argv[1])\n"
        "thread = threading.Thread(target=recorder.close); thread.start(); thread.join()\n"
        "os.kill(os.getpid(), signal.SIGUSR2)\n"
        "signal.pause()\n"
    )
    path = tmp_path / "run.mscope"
    done = subprocess.run([sys.executable, "-c", script, path], timeout=300)
    assert done.returncode == -signal.SIGUSR2


def test_a_recorder_adds_no_thread_of_the_system_at_a_fork(tmp_path: Path) -> None:
    """Python 3.12 counts these in /proc/self/stat and warns; numpy's own are the program's."""
    script = (
        "import os, sys, time, numpy\n"
        "count = lambda: len(os.listdir('/proc/self/task'))\n"
        "seen, before = [], count()\n"
        "os.register_at_fork(before=lambda: seen.append(count()))\n"
        "import memscope, memscope.recorder.process_hooks as process_hooks\n"
        "import memscope.recorder.retention as retention, memscope.recorder.recorder as writer\n"
        "retention.LEAST_BYTES, writer.FLUSH_ROWS = 1 << 15, 256\n"
        "process_hooks.EXIT_SECONDS = writer.FORK_SECONDS = 30.0\n"  # however late its thread is
        "recorder = memscope.record(sys.argv[1], keep_last='256KiB')\n"
        "for number in range(12000):\n"
        "    recorder.emit(4, number // 100, 1, os.urandom(16).hex(), number)\n"
        "    if number % 1000 == 0: recorder.flush(30.0); time.sleep(0.2)\n"
        "pid = os.fork()\n"
        "if not pid: os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "print(recorder._segments._moves is not None, before, seen)\n"
        "recorder.close()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "run.mscope")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    has_thinned, before, seen = done.stdout.split(" ", 2)
    assert (has_thinned, seen) == ("True", f"[{before}]\n"), done.stderr
