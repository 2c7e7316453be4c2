"""The program as a child: its end is noticed, whatever else runs in this process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memscope.errors import MemscopeError
from memscope.launch.program import command_words, run_program

# numpy and pyarrow bring threads that do not block signals, and may take one that is meant for us.
LATE = """
import os, threading, time
from memscope.launch.program import run_program

threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
spawn = os.posix_spawnp

def spawn_and_dawdle(*words, **options):
    pid = spawn(*words, **options)
    time.sleep(0.3)
    return pid

os.posix_spawnp = spawn_and_dawdle
os._exit(run_program(["sh", "-c", "exit 5"], os.environ))
"""


def test_an_end_before_the_wait_is_noticed_beside_other_threads() -> None:
    run = subprocess.run([sys.executable, "-c", LATE], capture_output=True, timeout=120)
    assert run.returncode == 5, run.stderr.decode()


# A thread that blocks nothing takes the signal before this one waits for it.
SIGNALLED = """
import os, signal, threading, time
from memscope.launch.program import run_program

threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
spawn = os.posix_spawnp
end, start = os.pipe()
os.set_inheritable(start, True)

def spawn_and_signal(*words, **options):
    pid = spawn(*words, **options)
    os.read(end, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.1)
    return pid

os.posix_spawnp = spawn_and_signal
program = f"trap 'exit 9' TERM; echo ready >/proc/self/fd/{start}; while :; do sleep 0.05; done"
os._exit(run_program(["sh", "-c", program], os.environ))
"""


def test_a_signal_before_the_wait_reaches_the_program() -> None:
    run = subprocess.run([sys.executable, "-c", SIGNALLED], capture_output=True, timeout=120)
    assert run.returncode == 9, run.stderr.decode()


def test_ignored_signal_stays_ignored_in_the_program() -> None:
    code = (
        "import os, signal; from memscope.launch.program import run_program\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "os._exit(run_program(['sh', '-c', 'kill -HUP $$; exit 6'], os.environ))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 6


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        ("#!/bin/sh\n", 0o644, "is not executable"),
        ("no line that says by what\n", 0o755, "is not a program that the system can start"),
        ("#!/no/such/interpreter\n", 0o755, "cannot be run"),
    ],
)
def test_what_cannot_be_started_is_told_apart(
    tmp_path: Path, text: str, mode: int, problem: str
) -> None:
    script = tmp_path / "script"
    script.write_text(text)
    script.chmod(mode)
    with pytest.raises(MemscopeError, match=problem) as caught:
        run_program(command_words([str(script)]), os.environ)
    assert caught.value.next_step


def test_interrupt_while_loading_is_no_traceback() -> None:
    code = (
        "import runpy, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'memscope.cli': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "runpy.run_module('memscope', run_name='__main__')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
    assert (run.returncode, run.stderr) == (130, b"")
