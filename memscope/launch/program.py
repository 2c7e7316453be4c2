"""Runs a program as this process's child and is as little between it and the world as can be."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from memscope.errors import MemscopeError

FORWARDED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
FROM_TERMINAL = ("SIGINT", "SIGQUIT")  # sent to the whole group as a rule: the program has it, too
RESTORED = ("SIGPIPE", "SIGXFSZ")  # Python ignores them; a program inherits that
# While we do not wait yet, a thread of a library may take SIGCHLD, and it is lost.
LOOK_SECONDS = 0.5
_PYTHON = re.compile(r"python[\d.]*")


def command_words(words: Sequence[str]) -> list[str]:
    """The command as the system runs it: scripts, ``-m`` and ``-c`` by this Python.

    Raises MemscopeError where there is none, or no such program.
    """
    words = words[1:] if words[:1] == ["--"] else words
    if not words:
        raise MemscopeError(
            "run needs a command.", "Write `memscope run train.py` or `-- COMMAND`."
        )
    if words[0] in ("-m", "-c") or words[0].endswith((".py", ".pyz")) or os.path.isdir(words[0]):
        return [sys.executable, *words]
    if os.sep in words[0] and os.path.exists(words[0]) and not os.access(words[0], os.X_OK):
        raise _unstartable(words[0], PermissionError(errno.EACCES, "Permission denied"))
    if shutil.which(words[0]) is None:
        raise MemscopeError(f"There is no program {words[0]}.", "Check its name and PATH.")
    return list(words)


def missing_script(command: Sequence[str]) -> str | None:
    """The script of ``command_words`` that Python will not find; None where that is not certain.

    A module's name, and what other programs make of their arguments, only they can tell.
    """
    script = command[1] if len(command) > 1 and _is_python(command[0]) else ""
    is_certain = script and not script.startswith("-") and not os.path.exists(script)
    return script if is_certain else None


def _is_python(program: str) -> bool:
    return program == sys.executable or bool(_PYTHON.fullmatch(os.path.basename(program)))


def run_program(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run ``command`` to its end; its exit code, 128 + n where signal n ended it.

    Signals sent to this process go on to the program; those from the terminal have reached it
    already.
    """
    if not hasattr(signal, "sigtimedwait"):
        raise MemscopeError("run records on Linux alone.", "Read its recordings here.")
    forwarded = {getattr(signal, name) for name in FORWARDED}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*forwarded, signal.SIGCHLD})
    caught = _Caught(forwarded)
    try:
        pid = os.posix_spawnp(
            command[0],
            list(command),
            dict(environment),
            setsigmask=before,
            setsigdef=[getattr(signal, name) for name in RESTORED],
        )
        return exit_code(_wait(pid, forwarded, caught))
    except OSError as error:
        raise _unstartable(command[0], error) from None
    finally:
        caught.restore()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Caught:
    """Signals that a thread of a library took in this one's stead, kept to be sent on.

    Such a thread blocks none; without a handler one of them would end this process alone.
    """

    def __init__(self, signals: set[signal.Signals]) -> None:
        self._pending: list[int] = []
        self._before = {
            each: signal.signal(each, self._keep)
            for each in signals
            if signal.getsignal(each) is not signal.SIG_IGN  # the program ignores it as well
        }

    def take(self) -> list[int]:
        """Those that came since the last call."""
        taken, self._pending = self._pending, []
        return taken

    def restore(self) -> None:
        """As the handlers were."""
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def _keep(self, number: int, _: object) -> None:
        if signal.Signals(number).name not in FROM_TERMINAL:
            self._pending.append(number)


def _unstartable(name: str, error: OSError) -> MemscopeError:
    if error.errno == errno.EACCES:
        return MemscopeError(f"{name} is not executable.", f"Make it so: chmod +x {name}")
    if error.errno == errno.ENOEXEC:
        return MemscopeError(
            f"{name} is no program that the system can start.",
            "Begin it with a line like #!/bin/sh, or name its interpreter.",
        )
    return MemscopeError(f"{name} cannot be run ({error.strerror}).", "Check its name and PATH.")


def exit_code(status: int) -> int:
    """What a shell makes of a status of ``waitpid``: 128 + n where signal n ended it."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _wait(pid: int, forwarded: set[signal.Signals], caught: _Caught) -> int:
    while True:
        for number in caught.take():
            os.kill(pid, number)
        info = signal.sigtimedwait({*forwarded, signal.SIGCHLD}, LOOK_SECONDS)
        if info is None or info.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return status
        elif info.si_code <= 0:  # sent by a process, not by the terminal to its whole group
            os.kill(pid, info.si_signo)


def hook_folder() -> Path | None:
    """The folder to put before PYTHONPATH; None where a ``.pth`` file of ours is installed."""
    package = Path(__file__).parent
    installed = any(
        os.path.exists(os.path.join(folder, "memscope-torch.pth"))
        for folder in sys.path
        if folder.endswith(("site-packages", "dist-packages"))
    )
    return None if installed else package / "site"
