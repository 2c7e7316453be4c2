"""Starts the recording where Python's own folders hold no hook of memscope.

``memscope run`` puts this folder before PYTHONPATH. It leaves ``sys.path`` as it would be without
it, and a ``sitecustomize`` of the user's runs as ever.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _start() -> None:
    if os.environ.get("MEMSCOPE_RECORD") and not os.environ.get("MEMSCOPE_OFF"):
        try:
            from memscope.launch.bootstrap import start
        except ImportError:
            return  # another interpreter, without memscope
        start()


def _run_hidden() -> None:
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if own is not None:
            sys.modules["sitecustomize"] = own


sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]
_start()
_run_hidden()
