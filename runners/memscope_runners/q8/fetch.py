"""A model by name or path, ready to run."""

from __future__ import annotations

from collections.abc import Callable

from memscope.errors import MemscopeError
from memscope_runners.q8.checkpoint import Checkpoint
from memscope_runners.q8.synthetic import SyntheticModel
from memscope_runners.q8.weights import CheckpointSource

Progress = Callable[[str, int, int], None]


def open_model(name: str | None, progress: Progress | None = None) -> CheckpointSource:
    """The model of that name or path; None is the default model."""
    if name is not None and name.startswith("synthetic:"):
        return Checkpoint.quantized(SyntheticModel.named(name))
    raise MemscopeError(f"There is no model {name}.", "Name synthetic:tiny.")
