"""`memscope run`: the program is as it was, whatever becomes of the recording."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memscope.reader.recording import Recording
from tests.memscope.launch.programs import (
    PYTHON,
    Ended,
    clean_environment,
    facts_of,
    record,
    run_process,
)

PROGRAMS = {
    "raises": "def f(): raise ValueError('no')\nf()",
    "exits with 3": "import sys; print('out'); sys.exit(3)",
    "leaves at once": "import os; os._exit(4)",
    "forks": "import os; print('child' if not os.fork() else os.wait()[1], flush=True)",
    "kills itself": "import os; os.kill(os.getpid(), 9)",
    "aborts": "import os; os.abort()",
    "reads stdin": "print(sum(map(int, open(0))), input.__name__)",
    "shows itself": "import sys, __main__; print(__name__, __main__.__file__, sys.argv, sys.path)",
    "closes every descriptor": "import os; os.closerange(3, 256); print(open(__file__).read())",
    "warns": "import warnings; warnings.warn('careful')",
}


def parts(ended: Ended) -> tuple[int, str, str]:
    return ended.code, ended.out, ended.err


@pytest.mark.parametrize("source", PROGRAMS.values(), ids=PROGRAMS)
def test_program_is_as_without(source: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(source)
    plain = run_process([PYTHON, "program.py", "-o", "x"], tmp_path, stdin="1\n2\n")
    recorded = record(tmp_path, "program.py", "-o", "x", stdin="1\n2\n")
    expected = plain.code if plain.code >= 0 else 128 - plain.code
    assert parts(recorded) == (expected, plain.out, plain.err)
    assert len(recorded.said) == 1 or source == PROGRAMS["closes every descriptor"]
    with Recording(tmp_path / "run.mscope") as recording:
        assert recording.header.command[0] == "program.py"


def test_traceback_has_no_frame_of_ours(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAMS["raises"])
    error = record(tmp_path, "program.py").err
    assert "ValueError: no" in error
    assert "memscope" not in error.replace(str(tmp_path), "")


@pytest.mark.parametrize(
    "words",
    [
        ["missing.py"],
        ["-m", "json.tool", "--help"],
        ["-m", "missing_module"],
        ["-c", "import sys; print(sys.argv)", "-o", "--", "x"],
        ["--", PYTHON, "-I", "-c", "import sys; print(sys.argv, sys.path)"],
        ["--", "sh", "-c", f"exec {PYTHON} -c 'print(7)'"],
        ["--", Path(PYTHON).with_name("pip"), "--version"],
    ],
)
def test_every_form_of_command(words: list[str], tmp_path: Path) -> None:
    plain_words = words[1:] if words[0] == "--" else [PYTHON, *words]
    plain = run_process(plain_words, tmp_path)
    recorded = record(tmp_path, *words)
    assert parts(recorded) == parts(plain)


def test_console_script_is_recorded(tmp_path: Path) -> None:
    assert record(tmp_path, "--", Path(PYTHON).with_name("pip"), "--version").code == 0
    with Recording(tmp_path / "run.mscope") as recording:
        assert recording.state.name == "complete"


def test_what_is_no_python_is_said_to_be_unrecorded(tmp_path: Path) -> None:
    ended = record(tmp_path, "--", "sh", "-c", "exit 5")
    assert ended.code == 5
    assert "nothing was recorded" in ended.said[0]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "needs a command"),
        (["--", "no-such-program"], "no program"),
        (["--report", "no/such/report.html", "x.py"], "folder no/such does not exist"),
    ],
)
def test_wrong_use_is_found_before_the_start(
    words: list[str], problem: str, tmp_path: Path
) -> None:
    ended = record(tmp_path, *words)
    assert ended.code == 2
    assert problem in ended.said[0]


def test_folder_that_cannot_be_written_is_found_before_the_start(tmp_path: Path) -> None:
    ended = record(tmp_path, "--force", "-o", "no/run.mscope", "-c", "print('started')")
    assert (ended.code, ended.out) == (2, "")


def test_kill_of_run_leaves_the_program_and_its_recording(tmp_path: Path) -> None:
    code = "print('ready', flush=True); print(input())"
    command = [PYTHON, "-m", "memscope", "run", "-o", "run.mscope", "-c", code]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=clean_environment(),
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"ready\n"
        run.kill()
        assert run.communicate(b"went on\n", timeout=60)[0] == b"went on\n"
    assert run.returncode == -signal.SIGKILL
    with Recording(tmp_path / "run.mscope") as recording:
        assert recording.state.name in ("complete", "running")  # it may be closing still


def test_signal_to_run_reaches_the_program(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "print('ready', flush=True)\n"
        "time.sleep(30)"
    )
    command = [PYTHON, "-m", "memscope", "run", "-o", "run.mscope", "-c", code]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, env=clean_environment()
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"ready\n"
        run.send_signal(signal.SIGTERM)
        assert run.wait(timeout=120) == 9


def test_report_is_written_at_the_end(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    ended = record(tmp_path, "--report", "run.html", "-c", "print(1)")
    assert ended.code == 0
    assert "<html" in (tmp_path / "run.html").read_text()[:200]


def test_disk_that_fills_stops_the_recording_alone(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import memscope, resource, time\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
        "recorder = memscope.active_recorder()\n"
        "for number in range(200_000): recorder.mark(f'mark {number}')\n"
        "time.sleep(1.5)\n"
        "print('done')\n"
    )
    ended = record(tmp_path, "program.py")
    assert (ended.code, ended.out, ended.err) == (0, "done\n", "")
    assert sum("recording stopped" in line for line in ended.said) == 1
    with Recording(tmp_path / "run.mscope") as recording:
        assert not recording.state.lost_bytes


def test_probe_that_raises_is_a_fact(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import memscope, time\n"
        "class Broken:\n"
        "    name = 'broken'\n"
        "    def __call__(self, recorder): raise RuntimeError('no reading')\n"
        "memscope.active_recorder()._probes._working.append(Broken())\n"
        "time.sleep(0.5)\n"
        "print('done')\n"
    )
    ended = record(tmp_path, "program.py")
    assert parts(ended) == (0, "done\n", "")
    assert facts_of(tmp_path / "run.mscope")["probe.broken"] == {
        "stopped": "RuntimeError: no reading"
    }


def test_start_costs_nothing_without_the_variable() -> None:
    line = (
        Path(sys.modules["memscope"].__file__ or "").parent / "launch/memscope-torch.pth"
    ).read_text()
    environment = {**os.environ, "MEMSCOPE_RECORD": ""}
    code = (
        f"import sys, time; before = set(sys.modules); line, spent = {line!r}, []\n"
        "for _ in range(9):\n"
        "    start = time.thread_time(); exec(line); spent.append(time.thread_time() - start)\n"
        "print(min(spent) < 0.001, sorted(set(sys.modules) - before))"
    )
    run = subprocess.run(
        [PYTHON, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout == "True []\n"


def test_sitecustomize_of_the_user_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    ended = record(tmp_path, "-c", "import sys; print(*sys.path[1:2])", PYTHONPATH=str(tmp_path))
    assert ended.out == f"mine\nmine\n{tmp_path}\n"  # once in memscope's own process


def test_switch_turns_it_off(tmp_path: Path) -> None:
    ended = record(
        tmp_path,
        "-c",
        "import sys; print('memscope.launch.process' in sys.modules)",
        MEMSCOPE_OFF="1",
    )
    assert ended.out == "False\n"
    assert not (tmp_path / "run.mscope").exists()
    assert ended.said == (
        "memscope: nothing was recorded: MEMSCOPE_OFF is set. Unset it to record.\n",
    )


def test_turned_off_it_leaves_the_recording_that_is_there(tmp_path: Path) -> None:
    assert record(tmp_path, "-c", "pass").code == 0
    before = (tmp_path / "run.mscope").read_bytes()
    assert record(tmp_path, "--force", "-c", "exit(3)", MEMSCOPE_OFF="1").code == 3
    assert (tmp_path / "run.mscope").read_bytes() == before
