"""Runs a program as a child process, and changes as little for it as possible."""

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
    """The command as the system runs it. This Python runs scripts, ``-m`` and ``-c``.

    Raises MemscopeError if there is no command, or no such program.
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
    """The script of ``command`` if Python will not find it; None if that is not certain.

    Only other programs know what their arguments mean, and only Python knows modules.
    """
    script = command[1] if len(command) > 1 and _is_python(command[0]) else ""
    is_certain = script and not script.startswith("-") and not os.path.exists(script)
    return script if is_certain else None


def _is_python(program: str) -> bool:
    return program == sys.executable or bool(_PYTHON.fullmatch(os.path.basename(program)))


def run_program(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run ``command`` to its end. Returns its exit code, or 128 + n if signal n ended it.

    Signals sent to this process are sent on to the program. Signals from the terminal reach it by
    themselves.
    """
    if not hasattr(signal, "sigtimedwait"):
        raise MemscopeError(
            "`memscope run` works on Linux only.", "Other systems can read its recordings."
        )
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
    """Signals that another thread of this process received, kept to be sent on.

    Threads of libraries block no signals. Without a handler, a signal would end this process alone.
    """

    def __init__(self, signals: set[signal.Signals]) -> None:
        self._pending: list[int] = []
        self._before = {
            each: signal.signal(each, self._keep)
            for each in signals
            if signal.getsignal(each) is not signal.SIG_IGN  # the program ignores it as well
        }

    def take(self) -> list[int]:
        """Signals since the last call."""
        taken, self._pending = self._pending, []
        return taken

    def restore(self) -> None:
        """Set the handlers that were there before."""
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def _keep(self, number: int, _: object) -> None:
        if signal.Signals(number).name not in FROM_TERMINAL:
            self._pending.append(number)


def _unstartable(name: str, error: OSError) -> MemscopeError:
    if error.errno == errno.EACCES:
        return MemscopeError(f"{name} is not executable.", f"Make it executable: chmod +x {name}")
    if error.errno == errno.ENOEXEC:
        return MemscopeError(
            f"{name} is not a program that the system can start.",
            "Start it with a line like #!/bin/sh, or name its interpreter.",
        )
    return MemscopeError(f"{name} cannot be run ({error.strerror}).", "Check its name and PATH.")


def exit_code(status: int) -> int:
    """The exit code that a shell gives for a status of ``waitpid``: 128 + n for signal n."""
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
    """The folder to put into PYTHONPATH; None if our ``.pth`` file is installed."""
    package = Path(__file__).parent
    installed = any(
        os.path.exists(os.path.join(folder, "memscope-torch.pth"))
        for folder in sys.path
        if folder.endswith(("site-packages", "dist-packages"))
    )
    return None if installed else package / "site"
