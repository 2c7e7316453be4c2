"""`memscope run --live`: run the program on a pseudo-terminal while the live view is shown.

The program's output goes to a log beside the recording, and to the terminal when the user leaves
the view. Keys go to the view, not to the program.
"""

from __future__ import annotations

import os
import pty
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from memscope.cli.requirements import require
from memscope.errors import MemscopeError
from memscope.launch.program import exit_code

CHUNK_BYTES = 1 << 16


def run_under_view(command: Sequence[str], environment: Mapping[str, str], path: Path) -> int:
    """Run ``command``, recorded at ``path``, and show the live view. Returns its exit code.

    The user may leave the view before the program ends. Raises MemscopeError without a terminal.
    """
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise MemscopeError("--live needs a terminal.", "Leave it out here.")
    with require("dashboards", "textual"):
        from memscope_dashboards.tui.app import follow
    with open(path.with_suffix(".log"), "w+b", buffering=0) as log:
        program = TerminalProgram(command, environment, log)
        try:
            follow(path)
        finally:
            program.show(sys.stdout.buffer)
        return program.wait()


class TerminalProgram:
    """A program on a pseudo-terminal. Everything that it writes goes to ``log``."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]
    ) -> None:
        """Start the program. Raises MemscopeError if it cannot be started."""
        self._log = log
        self._screen: IO[bytes] | None = None
        self._lock = threading.Lock()
        self._master, slave = pty.openpty()
        name = os.ttyname(slave)
        try:
            self._pid = os.posix_spawnp(
                command[0],
                list(command),
                dict(environment),
                setsid=True,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, name, os.O_RDWR, 0),
                    (os.POSIX_SPAWN_DUP2, 0, 1),
                    (os.POSIX_SPAWN_DUP2, 0, 2),
                ],
            )
        except OSError as error:
            os.close(self._master)
            raise MemscopeError(f"{command[0]} cannot be run ({error.strerror}).") from None
        finally:
            os.close(slave)
        self._reader = threading.Thread(target=self._read, name="memscope-output", daemon=True)
        self._reader.start()

    def show(self, screen: IO[bytes]) -> None:
        """Write the output so far to ``screen``, then all that follows."""
        with self._lock:
            self._log.seek(0)
            while chunk := self._log.read(CHUNK_BYTES):
                screen.write(chunk)
            screen.flush()
            self._screen = screen

    def wait(self) -> int:
        """Wait for the program and return its exit code. Ctrl-C goes to the program meanwhile."""
        old = signal.signal(signal.SIGINT, lambda *_: os.killpg(self._pid, signal.SIGINT))
        try:
            status = os.waitpid(self._pid, 0)[1]
            self._reader.join(timeout=1)  # a child of its own may still hold the terminal
        finally:
            signal.signal(signal.SIGINT, old)
        return exit_code(status)

    def _read(self) -> None:
        while chunk := self._next_chunk():
            with self._lock:
                self._log.write(chunk)
                if self._screen is not None:
                    self._screen.write(chunk)
                    self._screen.flush()
        os.close(self._master)

    def _next_chunk(self) -> bytes:
        try:
            return os.read(self._master, CHUNK_BYTES)
        except OSError:  # the last process on the terminal has ended
            return b""
