"""What watching a transformers model costs, beside torch's own recorders, ms a token.

Every variant is a model of its own over the same weights; they take turns, so that what the
machine does to one it does to all.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.metadata
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch

from memscope.probes.modules import watch
from memscope.probes.pace import StepPace
from memscope.writer import record
from memscope_runners.bench.intervals import Median, median_with_interval

PLAIN, EMPTY, WATCH = "plain", "empty hooks", "memscope.watch"
COUNTER = "memory_allocated() in hooks"
HISTORY, PROFILER = "_record_memory_history", "torch.profiler(profile_memory=True)"
VARIANTS = (PLAIN, EMPTY, WATCH, COUNTER, HISTORY, PROFILER)
NEEDS_GPU = {
    COUNTER: "torch counts allocations of GPUs alone",
    HISTORY: "torch follows allocations of GPUs alone",
}
LIMITS = {"watch over empty hooks": 1.02}
CONTEXT = 64
HISTORY_ENTRIES = 100_000

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Cost:
    """One variant: ms a token, and ratios to others of the same round."""

    name: str
    ms_per_token: Median
    over_plain: Median
    over_empty_hooks: Median


@dataclass(frozen=True, slots=True)
class WatchOverhead:
    """All variants that ran, and why others did not. ``every``: one forward in so many is read."""

    costs: tuple[Cost, ...]
    skipped: dict[str, str]
    every: int
    machine: dict[str, Any]
    tokens: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"limits": LIMITS}

    def table(self) -> list[tuple[str, ...]]:
        """Rows for people, a heading first."""
        rows: list[tuple[str, ...]] = [("", "ms/token", "over plain", "over empty hooks")]
        for cost in self.costs:
            ratios = (cost.over_plain, cost.over_empty_hooks)
            rows.append((cost.name, f"{cost.ms_per_token.value:.2f}", *map(_ratio, ratios)))
        return rows + [
            (name, f"not run: {reason}", "", "") for name, reason in self.skipped.items()
        ]


def measure(*, rounds: int, tokens: int, device: str, progress: Progress) -> WatchOverhead:
    """``rounds`` turns of every variant, ``tokens`` each, after one that warms up."""
    is_gpu = device.startswith("cuda")
    model = build_model(device, is_large=is_gpu)
    names = [name for name in VARIANTS if is_gpu or name not in NEEDS_GPU]
    turns = {name: _Turn(share_weights(model), name, tokens, device) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="memscope-bench-") as folder, torch.inference_mode():
        for turn in range(rounds + 1):
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:  # nobody is always first
                taken = turns[name].run(Path(folder))
                if turn:
                    seconds[name].append(taken)
            progress("rounds", turn, rounds)
    return WatchOverhead(
        costs=tuple(_cost(name, seconds, tokens) for name in names),
        skipped={name: reason for name, reason in NEEDS_GPU.items() if name not in names},
        every=turns[WATCH].pace.every,
        machine=_machine(device),
        tokens=tokens,
    )


def build_model(device: str, *, is_large: bool) -> Any:
    """A random Qwen3: on a GPU of 1.7 B parameters in bfloat16, else a small one in float32."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = (151_936, 2048, 6144, 28, 16, 8, 128) if is_large else (512, 128, 256, 28, 4, 2, 32)
    names = (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
    )
    settings: dict[str, Any] = dict(zip(names, sizes, strict=True))
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if is_large else torch.float32)
    try:
        with torch.device(device):
            model: Any = Qwen3ForCausalLM(Qwen3Config(**settings))
            return model.eval()
    finally:
        torch.set_default_dtype(default)


def share_weights(model: Any) -> Any:
    """A copy whose parameters and buffers are those of ``model``."""
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


class _Turn:
    """One variant, which decodes ``tokens`` at a time from the same context."""

    def __init__(self, model: Any, name: str, tokens: int, device: str) -> None:
        self._model, self._name, self._tokens, self._device = model, name, tokens, device
        self.pace = StepPace()
        self._prompt = torch.ones((1, CONTEXT), dtype=torch.long, device=device)
        hooks = {EMPTY: lambda *_: None, COUNTER: lambda *_: _read_allocated()}
        if name in hooks:
            for layer in model.model.layers:
                layer.register_forward_hook(hooks[name])

    def run(self, folder: Path) -> float:
        """Seconds of the tokens, and of what recording them leaves to do."""
        cache = self._model(self._prompt, use_cache=True, logits_to_keep=1).past_key_values
        inputs = self._prompt[:, :1]
        self._wait()
        with contextlib.ExitStack() as stack:
            finish = stack.enter_context(self._recorder(folder))
            start_ns = perf_counter_ns()
            for _ in range(self._tokens):
                self._model(inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
            self._wait()
            finish()
            return (perf_counter_ns() - start_ns) / 1e9

    @contextlib.contextmanager
    def _recorder(self, folder: Path) -> Iterator[Callable[[], None]]:
        """What runs beside; the call ends it where ending is part of the cost."""
        if self._name == WATCH:
            recorder = record(folder / "watch.mscope", force=True)
            watching = watch(self._model, recorder=recorder)
            watching.pace = self.pace  # as if it had gone on since the last turn

            def close() -> None:
                watching.close()
                recorder.close()

            yield close
        elif self._name == HISTORY:
            torch.cuda.memory._record_memory_history(max_entries=HISTORY_ENTRIES, stacks="python")
            yield _nothing
            torch.cuda.memory._record_memory_history(enabled=None)
        elif self._name == PROFILER:
            with torch.profiler.profile(profile_memory=True):
                yield _nothing
        else:
            yield _nothing

    def _wait(self) -> None:
        if self._device.startswith("cuda"):
            torch.cuda.synchronize()


def _nothing() -> None:
    """Nothing is left to do."""


def _read_allocated() -> None:
    torch.cuda.memory_allocated()


def _cost(name: str, seconds: dict[str, list[float]], tokens: int) -> Cost:
    mine = seconds[name]

    def over(other: str) -> Median:
        return median_with_interval([a / b for a, b in zip(mine, seconds[other], strict=True)])

    ms_per_token = median_with_interval([taken / tokens * 1e3 for taken in mine])
    return Cost(name, ms_per_token, over(PLAIN), over(EMPTY))


def _ratio(ratio: Median) -> str:
    return f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


def _machine(device: str) -> dict[str, Any]:
    is_gpu = device.startswith("cuda")
    packages = ("memscope-torch", "torch", "transformers")
    return {
        "device": torch.cuda.get_device_name(device) if is_gpu else "host",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }
