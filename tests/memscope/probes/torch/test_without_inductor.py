"""Torch looks up stacks without importing its compiler for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import torch
import torch._C._profiler as profiler
from memscope.probes.torch.allocator_map import without_inductor
stack = profiler.gather_traceback(python=True, script=True, cpp=False)
if sys.argv[1] == "guarded":
    with without_inductor():
        found = profiler.symbolize_tracebacks([stack])
else:
    found = profiler.symbolize_tracebacks([stack])
assert found[0][0]["name"] == "<module>", found
print("torch._inductor" in sys.modules)
import torch._inductor
with without_inductor():
    assert sys.modules["torch._inductor"] is torch._inductor
"""


def imports_inductor(how: str) -> bool:
    command = [sys.executable, "-c", PROGRAM, how]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout == "True\n"


@pytest.mark.slow
def test_looking_up_a_stack_imports_no_compiler() -> None:
    if not imports_inductor("plain"):
        pytest.skip("this torch imports its compiler for no stack")
    assert not imports_inductor("guarded")
