"""Begins recording in a program's interpreter, before the program's first line.

Python runs this at start, from a ``.pth`` file beside the installed package or from the
``sitecustomize`` that ``memscope run`` puts first. If anything fails here, the program goes on.
"""

from __future__ import annotations

import sys

from memscope.launch.environment import say_unrecorded

_has_started = False
_TRACKER = "from multiprocessing.resource_tracker import"


def start() -> None:
    """Record this process if the environment says so. Does so once, and never raises."""
    global _has_started
    if _has_started or _is_memscope() or _is_resource_tracker():
        return
    _has_started = True
    try:
        from memscope.launch.process import start_process

        start_process()
    except Exception as error:
        say_unrecorded(error)


def _is_memscope() -> bool:
    """Whether this process is a memscope command, which would only record itself."""
    words = sys.orig_argv[1:3]
    return words == ["-m", "memscope"] or (
        bool(words) and words[0].replace("\\", "/").rpartition("/")[2] == "memscope"
    )


def _is_resource_tracker() -> bool:
    """Whether this is multiprocessing's process that only cleans up after others."""
    return any(word.startswith(_TRACKER) for word in sys.orig_argv)
