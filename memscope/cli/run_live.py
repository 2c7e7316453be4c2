"""`memscope run --live`: the program on a terminal of its own, under the live view.

Its output goes to a log beside the recording, and to the terminal once the view is left. Keys are
the view's: the program gets none.
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

from memscope.cli.needs import needing
from memscope.errors import MemscopeError
from memscope.launch.program import exit_code

CHUNK_BYTES = 1 << 16


def run_under_view(command: Sequence[str], environment: Mapping[str, str], path: Path) -> int:
    """Run ``command``, recorded at ``path``, under the live view; its exit code.

    The view may be left before the program ends. Raises MemscopeError where there is no terminal.
    """
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise MemscopeError("--live needs a terminal to draw in.", "Leave it out here.")
    with needing("dashboards", "textual"):
        from memscope_dashboards.tui.app import follow
    with open(path.with_suffix(".log"), "w+b", buffering=0) as log:
        program = TerminalProgram(command, environment, log)
        try:
            follow(path)
        finally:
            program.show(sys.stdout.buffer)
        return program.wait()


class TerminalProgram:
    """A program whose terminal is a pseudo one; all that it writes goes to ``log``."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]
    ) -> None:
        """Raises MemscopeError where it cannot be started."""
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
        """Write what there is to ``screen``, and from now on what comes."""
        with self._lock:
            self._log.seek(0)
            while chunk := self._log.read(CHUNK_BYTES):
                screen.write(chunk)
            screen.flush()
            self._screen = screen

    def wait(self) -> int:
        """Its exit code once it has ended; Ctrl-C meanwhile is the program's."""
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
