"""The program as a child: its end is noticed, whatever else runs in this process."""

from __future__ import annotations

import subprocess
import sys

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
    run = subprocess.run([sys.executable, "-c", LATE], capture_output=True, timeout=20)
    assert run.returncode == 5, run.stderr.decode()
