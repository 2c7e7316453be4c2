"""A program on a GPU, as its readings tell of it."""

from __future__ import annotations

from tests.memscope.analysis.build import Event, fact
from tests.memscope.analysis.torch_runs import GIB, GPU, MIB, TOTAL, sample

READINGS = {
    "torch.reserved_bytes": 6 * GIB,
    "torch.allocated_bytes": 4 * GIB,
    "torch.active_bytes": 4 * GIB + 100 * MIB,
    "torch.inactive_split_bytes": 300 * MIB,
    "model.weights_bytes": 2 * GIB,
    "model.gradients_bytes": GIB,
    "model.optimizer_bytes": 0,
    "model.kv_bytes": 512 * MIB,
    "nvml.total_bytes": TOTAL,
    "nvml.driver_reserved_bytes": 600 * MIB,
    "nvml.used_bytes": 10 * GIB,
    "nvml.process_bytes": 7 * GIB,
}


OTHERS = fact("nvml.others.0", {"77": {"bytes": 2 * GIB, "command": "python"}})


CONTEXT = fact("context.0", {"bytes": 518 * MIB})


def program(*more: Event, without: tuple[str, ...] = (), **changed: int) -> list[Event]:
    """A program on a GPU; ``changed`` by reading, dots as underscores twice."""
    readings = READINGS | {name.replace("__", "."): size for name, size in changed.items()}
    readings["nvml.free_bytes"] = TOTAL - 600 * MIB - readings["nvml.used_bytes"]
    rows = [
        sample(name, 1000 + number, size)
        for number, (name, size) in enumerate(readings.items())
        if not name.startswith(without or ("?",))
    ]
    return [GPU, OTHERS, CONTEXT, *more, *rows]
