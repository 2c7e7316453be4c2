"""The recorder: what it writes, and that its faults never reach the program."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from memscope.analysis.summary.sentence import SentenceKind
from memscope.analysis.summary.sentences import write_sentences
from memscope.analysis.timeline.read import read_timeline
from memscope.errors import MemscopeError
from memscope.events import Kind
from memscope.launch.record import record
from memscope.reader.recording import Recording
from memscope.recorder import recorder as writer
from memscope.recorder.active import active_recorder
from memscope.recorder.recorder import FLUSH_ROWS, Recorder


@pytest.fixture(autouse=True)
def patient_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause waits for the recorder's thread, however late that has its turn."""
    monkeypatch.setattr(writer, "FORK_SECONDS", 60.0)


def rows_of(path: Path) -> list[tuple[int, int, int, str | None]]:
    with Recording(path) as recording:
        return [
            (int(kind), int(step), int(size), batch.name(row))
            for batch in recording.batches()
            for row, (kind, step, size) in enumerate(
                zip(batch["kind"], batch["step"], batch["bytes"], strict=True)
            )
        ]


def run_script(script: str, *args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_what_is_emitted_is_read_back(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run.mscope") as recorder:
        recorder.emit(Kind.UPLOAD, 3, 5, "slab", 4096, duration_ns=7, value=7.0)
        recorder.fact("model", {"layers": 2})
    with Recording(tmp_path / "run.mscope") as recording:
        batch = next(recording.batches())
        assert recording.state.name == "complete"
    assert [batch[name][0] for name in ("step", "layer", "bytes", "duration_ns")] == [3, 5, 4096, 7]
    assert batch["bytes"][1] == -1
    assert batch.data(1) == {"layers": 2}
    assert batch["t_ns"][0] <= batch["t_ns"][1]


def test_steps_marks_and_phases(tmp_path: Path) -> None:
    with record(tmp_path / "run.mscope") as recorder:
        assert active_recorder() is recorder
        with recorder.step() as number, recorder.phase("load"):
            recorder.mark("here")
        assert number == 0
    assert active_recorder() is None
    named = [(row[0], row[1], row[3]) for row in rows_of(tmp_path / "run.mscope") if row[1] == 0]
    assert named == [(Kind.MARK, 0, "here"), (Kind.PHASE, 0, "load"), (Kind.STEP, 0, None)]


def test_a_mark_between_steps_is_in_none(tmp_path: Path) -> None:
    with Recorder(tmp_path / "run.mscope") as recorder:
        with recorder.step():
            pass
        recorder.mark("between")
    named = {row[3]: row[1] for row in rows_of(tmp_path / "run.mscope")}
    assert named["between"] == -1


def test_a_long_command_line_leaves_the_header_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["program", *["\N{HIRAGANA LETTER A}" * 1000] * 1000])
    Recorder(tmp_path / "run.mscope").close()
    with Recording(tmp_path / "run.mscope") as recording:
        assert recording.header.command[0] == "program"
        assert recording.header.command[-1] == "…"


def test_events_after_close_are_ignored(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.mscope")
    recorder.close()
    recorder.emit(Kind.MARK)
    recorder.close()
    assert rows_of(tmp_path / "run.mscope") == []


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    path = tmp_path / "run.mscope"
    path.write_text("mine")
    with pytest.raises(MemscopeError, match="force=True"):
        Recorder(path)
    assert path.read_text() == "mine"
    Recorder(path, force=True).close()
    assert rows_of(path) == []


def test_a_device_or_pipe_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(MemscopeError, match="not a regular file"):
        Recorder(path, force=True)
    assert path.is_fifo()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("no/such/folder/run.mscope", "Create it: mkdir"),
        (".", "is a folder"),
        ("file/run.mscope", "another place"),
    ],
)
def test_bad_paths_are_found_before_anything_starts(
    tmp_path: Path, where: str, message: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MemscopeError, match=message):
        Recorder(tmp_path / where)


def test_a_probe_that_raises_is_stopped_and_named(tmp_path: Path) -> None:
    calls = []

    class Probe:
        name = "broken"

        def __call__(self, recorder: Recorder) -> None:
            calls.append(1)
            raise RuntimeError("no reading")

    with Recorder(tmp_path / "run.mscope", probes=[Probe()]) as recorder:
        time.sleep(0.4)
        recorder.mark("on")
    assert len(calls) == 1
    assert {row[3] for row in rows_of(tmp_path / "run.mscope")} == {"probe.broken", "on"}


def test_a_full_disk_stops_the_recording_and_not_the_program(tmp_path: Path) -> None:
    script = (
        "import resource, signal, sys, time, memscope\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
        "with memscope.record(sys.argv[1]) as rec:\n"
        "    while rec.flush(60):\n"
        "        for i in range(50): rec.emit(2, i, name=f'{time.time()} {i}')\n"
        "    for i in range(50): rec.emit(2, i)\n"
        "    print('result 42', rec.stopped)\n"
        "sys.exit(7)\n"
    )
    done = run_script(script, tmp_path / "run.mscope")
    assert done.returncode == 7
    assert done.stdout.startswith("result 42 ")
    assert done.stderr.count("\n") == 1
    assert "File too large" in done.stderr
    with Recording(tmp_path / "run.mscope") as recording:
        assert recording.state.name == "cut"
        assert recording.state.rows > 50


@pytest.mark.slow
def test_kill_9_at_random_moments_loses_at_most_a_second(tmp_path: Path) -> None:
    script = (
        "import sys, time, memscope\n"
        "with memscope.record(sys.argv[1]) as rec:\n"
        "    print('go', flush=True)\n"
        "    while True:\n"
        "        rec.emit(31, name='tick'); time.sleep(0.0005)\n"
    )
    generator = random.Random(7)
    for number in range(20):
        path = tmp_path / f"{number}.mscope"
        with subprocess.Popen([sys.executable, "-c", script, path], stdout=-1) as process:
            assert process.stdout is not None
            process.stdout.readline()
            started = time.monotonic()
            time.sleep(generator.uniform(0.0, 1.4))
            lived = time.monotonic() - started
            process.kill()
        with Recording(path) as recording:
            assert recording.state.name == "cut"
            last = [batch["t_ns"][-1] for batch in recording.batches()][-1:] or [0]
        assert lived - last[0] / 1e9 <= 1.0, f"run {number}: lost too much"


def test_a_forked_child_never_writes_into_its_parents_file(tmp_path: Path) -> None:
    path = tmp_path / "run.mscope"
    recorder = Recorder(path)
    recorder.mark("parent")
    context = multiprocessing.get_context("fork")
    child = context.Process(target=recorder.mark, args=("child",))
    child.start()
    child.join()
    assert child.exitcode == 0
    recorder.close()
    assert [row[3] for row in rows_of(path)] == ["parent"]


def test_a_living_child_does_not_keep_its_parents_file_running(tmp_path: Path) -> None:
    script = (
        "import os, sys, time, memscope\n"
        "rec = memscope.Recorder(sys.argv[1]); rec.mark('parent')\n"
        "come, tell = os.pipe()\n"
        "child = os.fork()\n"
        "if child == 0: os.write(tell, b'x'); os.close(1); os.close(2); time.sleep(120)\n"
        "os.read(come, 1); print(child, flush=True); os.kill(os.getpid(), 9)\n"
    )
    child = int(run_script(script, tmp_path / "run.mscope").stdout)
    try:
        with Recording(tmp_path / "run.mscope") as recording:
            assert recording.state.name == "cut"
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_child_does_not_wait_for_what_another_thread_held_at_the_fork(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys, threading\n"
        "held, forked = threading.Event(), threading.Event()\n"
        "def hold():\n"
        "    with recorder._turn: held.set(); forked.wait()\n"
        "def begin(): threading.Thread(target=hold).start(); held.wait()\n"
        "os.register_at_fork(before=begin, after_in_parent=forked.set)\n"  # inside of memscope's
        "from memscope import Recorder\n"
        "recorder = Recorder(sys.argv[1])\n"
        "child = os.fork()\n"
        "if child == 0: signal.alarm(10); recorder.flush(1.0); recorder.close(); os._exit(0)\n"
        "print(os.waitpid(child, 0)[1])\n"
    )
    assert run_script(script, tmp_path / "run.mscope").stdout == "0\n"


def test_a_recorder_left_open_is_closed_at_exit(tmp_path: Path) -> None:
    script = "import sys, memscope; memscope.Recorder(sys.argv[1]).mark('x')"
    assert run_script(script, tmp_path / "run.mscope").returncode == 0
    with Recording(tmp_path / "run.mscope") as recording:
        assert (recording.state.name, recording.state.rows) == ("complete", 1)


def test_a_backlog_becomes_sums_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memscope.recorder.recorder.MAX_BACKLOG_ROWS", 10_000)
    with Recorder(tmp_path / "run.mscope") as recorder:
        recorder.pause()  # its thread, so that rows wait however fast it is
        for number in range(20_000):
            recorder.emit(Kind.UPLOAD, number // 1000, 1, "slab", 10, 5)
        recorder.fact("kept", 1)
        recorder.resume()
        assert recorder.flush(30.0)
    rows = rows_of(tmp_path / "run.mscope")
    whole = [row for row in rows if row[0] == Kind.UPLOAD]
    sums = [row for row in rows if row[0] == Kind.DROPPED]
    assert recorder.dropped_rows == 20_000 - FLUSH_ROWS
    assert sum(row[2] for row in sums) == recorder.dropped_rows * 10
    assert len(whole) + recorder.dropped_rows == 20_000
    assert [row[3] for row in rows if row[0] == Kind.FACT] == ["kept"]


def test_a_backlog_keeps_its_order_while_rows_come_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memscope.recorder.recorder.MAX_BACKLOG_ROWS", 10_000)
    recorder = Recorder(tmp_path / "run.mscope")
    recorder._closing = True  # ends its thread; what follows happens on this one
    recorder._thread.join()

    class Late(int):
        """A kind; whoever looks it up lets a step end meanwhile."""

        def __hash__(self) -> int:
            recorder.emit(Kind.STEP, 99)
            return super().__hash__()

    for number in range(10_000):
        recorder.emit(Kind.STEP if number % 100 == 0 else Kind.UPLOAD, number // 1000)
    recorder._rows.insert(5_000, (0, Late(Kind.UPLOAD), *recorder._rows[5_000][2:]))
    recorder._bound_backlog()
    steps = [row[2] for row in recorder._rows if row[1] == Kind.STEP]
    recorder._end()
    assert steps == sorted(steps)
    assert steps[-1] == 99


def test_a_flush_puts_every_row_before_it_into_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memscope.recorder.recorder.FLUSH_SECONDS", 60.0)
    path = tmp_path / "run.mscope"
    with Recorder(path) as recorder:
        for number in range(20):
            recorder.mark(str(number))
            assert recorder.flush(10.0)
            assert [row[3] for row in rows_of(path)] == [str(each) for each in range(number + 1)]


def test_a_flush_does_nothing_on_the_writers_thread_or_afterwards(tmp_path: Path) -> None:
    answers = []
    with Recorder(tmp_path / "run.mscope", probes=[lambda r: answers.append(r.flush(10.0))]) as r:
        r.mark("there")
        assert r.flush(10.0)
    assert answers == [False] * len(answers) != []
    assert not r.flush(10.0)


def test_a_flush_ends_in_time_where_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(tmp_path / "run.mscope")
    recorder.pause()  # as while the program forks
    assert not recorder.flush(0.05)
    recorder.resume()
    assert recorder.flush(10.0)
    monkeypatch.setattr(
        recorder._segments, "write", lambda rows: (_ for _ in ()).throw(OSError(28, "full"))
    )
    recorder.mark("lost")
    assert not recorder.flush(10.0)
    assert not recorder.flush(10.0)
    recorder.close()


class SlowList(list[threading.Event]):
    """Whoever appends is overtaken by others meanwhile."""

    def append(self, event: threading.Event) -> None:
        time.sleep(0.3)
        super().append(event)


def test_a_flush_beside_a_close_does_not_wait_for_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.mscope")
    recorder._flushes = SlowList()
    flusher = threading.Thread(target=recorder.flush, args=(60.0,), daemon=True)
    flusher.start()
    time.sleep(0.1)
    recorder.close()
    flusher.join(30.0)
    assert not flusher.is_alive()


def test_a_close_while_another_thread_forks_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.mscope"
    recorder = Recorder(path)
    recorder.pause()  # as while the program forks
    closer = threading.Thread(target=recorder.close)
    closer.start()
    time.sleep(0.05)
    recorder.mark("late")
    recorder.resume()
    closer.join(30.0)
    assert [row[3] for row in rows_of(path)] == ["late"]
    with Recording(path) as recording:
        assert recording.state.name == "complete"


def test_a_close_waits_for_the_thread_that_begins_after_a_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_late(recorder: Recorder) -> None:
        closer.start()
        time.sleep(0.1)
        start_thread(recorder)

    start_thread = Recorder._start_thread
    recorder = Recorder(tmp_path / "run.mscope")
    closer = threading.Thread(target=recorder.close)
    monkeypatch.setattr(Recorder, "_start_thread", start_late)
    recorder.pause()
    recorder.mark("late")
    recorder.resume()
    closer.join(30.0)
    assert not recorder._thread.is_alive()
    assert recorder.stopped is None
    assert [row[3] for row in rows_of(recorder.path)] == ["late"]


def test_a_close_beside_a_fork_that_takes_long_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FORK_SECONDS", 0.2)
    path = tmp_path / "run.mscope"
    recorder = Recorder(path)
    recorder.pause()
    recorder.mark("late")
    recorder.close()
    recorder.resume()
    assert [row[3] for row in rows_of(path)] == ["late"]


@pytest.mark.parametrize("data", ["text", {"a": 1}, 2, 2.5, [1], True, {"path": Path("x")}])
def test_data_is_read_back_as_it_was(tmp_path: Path, data: object) -> None:
    with Recorder(tmp_path / "run.mscope") as recorder:
        recorder.fact("key", data)
    with Recording(tmp_path / "run.mscope") as recording:
        expected = {"path": "x"} if data == {"path": Path("x")} else data
        assert next(recording.batches()).data(0) == expected


class Loud:
    """Whoever asks what it is gets an exception."""

    def __repr__(self) -> str:
        raise RuntimeError("nothing to see")

    __str__ = __repr__


ENDLESS: list[object] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize("data", [{(1, 2): "a"}, ENDLESS, {"a": Loud()}, Loud(), {b"k": 1}])
def test_a_fact_that_json_has_no_form_for_is_kept_as_text(tmp_path: Path, data: object) -> None:
    with Recorder(tmp_path / "run.mscope") as recorder:
        recorder.fact("odd", data)
        recorder.mark("after it")
    assert recorder.stopped is None
    with Recording(tmp_path / "run.mscope") as recording:
        read = next(recording.batches()).data(0)
    assert set(read) == {"text", "note"}
    assert read["note"].startswith("no JSON: ")


def test_no_thread_of_ours_lives_at_a_fork(tmp_path: Path) -> None:
    """Python 3.12 warns of threads then, and a child inherits the locks that they hold."""
    script = (
        "import os, sys, threading\n"
        "alive = []\n"
        "hook = lambda: alive.extend(t.name for t in threading.enumerate())\n"
        "os.register_at_fork(before=hook)\n"  # hooks before a fork run in reverse order
        "from memscope.recorder.recorder import Recorder\n"
        "recorder = Recorder(sys.argv[1])\n"
        "for number in range(20):\n"
        "    recorder.mark(f'before {number}')\n"
        "    pid = os.fork()\n"
        "    if not pid: os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
        "recorder.mark('after')\n"
        "recorder.close()\n"
        "print(set(alive))\n"
    )
    path = tmp_path / "run.mscope"
    assert run_script(script, path).stdout == "{'MainThread'}\n"
    marks = [name for kind, _, _, name in rows_of(path) if kind == Kind.MARK]
    assert marks == [*(f"before {number}" for number in range(20)), "after"]


def test_an_event_that_cannot_be_encoded_is_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "run.mscope"
    with Recorder(path) as recorder:
        for number in range(20):
            recorder.emit(Kind.LAYER, number)
        recorder.emit("upload", 3)  # type: ignore[arg-type]
        recorder.emit(Kind.LAYER, 20, bytes="many" * 99_999)  # type: ignore[arg-type]
        recorder.emit(Kind.LAYER, 1 << 70)
        recorder.emit(Kind.LAYER, 21)
    assert recorder.stopped is None
    with Recording(path) as recording:
        assert recording.state.name == "complete"
        timeline = read_timeline(recording)
    assert timeline.counts["layer"] == 21
    assert timeline.fact("recorder.refused", "rows") == 3
    assert 10 < len(timeline.fact("recorder.refused", "reason")) <= 200
    sentences = write_sentences(timeline, recording.state)
    assert any(
        each.kind is SentenceKind.REFUSED_EVENTS and each.text.startswith("3 events")
        for each in sentences
    )
