"""What watching a transformers model costs, beside torch's own recorders, ms a token.

Every variant is a model of its own over the same weights; they take turns, so that what the
machine does to one it does to all. What watching is compared with takes more turns than torch's
recorders, which cost much and need fewer. A watched turn ends when its rows are written; the
recording goes on in the next one, and its thread is away meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch

from memscope.cli.bench import (
    add_window_options,
    check_window_options,
    named_device,
    run_script,
    show,
)
from memscope.cli.progress import ProgressBars
from memscope.launch.record import record
from memscope.probes.torch.history import start_history, stop_history
from memscope.probes.watch.watch import watch
from memscope_runners.bench.intervals import Median, median_with_interval

PLAIN, EMPTY, WATCH = "plain", "empty hooks", "memscope.watch"
COUNTER = "memory_allocated() in hooks"
HISTORY, PROFILER = "_record_memory_history", "torch.profiler(profile_memory=True)"
COMPARED, PEERS = (PLAIN, EMPTY, WATCH), (COUNTER, HISTORY, PROFILER)
COMPARED_TURNS = 20  # a round, to one of each of the peers
NEEDS_GPU = {
    COUNTER: "torch counts allocations of GPUs alone",
    HISTORY: "torch follows allocations of GPUs alone",
}
LIMITS = {"watch over empty hooks": 1.02}
CONTEXT = 64
HISTORY_ENTRIES = 100_000
WRITE_SECONDS = 60.0

Finish = Callable[[], None]  # what is left to do at the end of a turn, as a part of its cost
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
    """``rounds`` of turns of ``tokens`` each, after one turn of everybody that warms up."""
    is_gpu = device.startswith("cuda")
    names = [name for name in (*COMPARED, *PEERS) if is_gpu or name not in NEEDS_GPU]
    model = build_model(device, is_large=is_gpu)
    with tempfile.TemporaryDirectory(prefix="memscope-bench-") as folder, torch.inference_mode():
        watched = _Watched(share_weights(model), Path(folder) / "watch.mscope")
        turns = {
            name: _Turn(share_weights(model), name, tokens, device)
            for name in names
            if name != WATCH
        }
        turns[WATCH] = _Turn(watched.model, WATCH, tokens, device, watched.turn)
        seconds: dict[str, dict[int, float]] = {name: {} for name in names}
        for turn in range(-1, rounds * COMPARED_TURNS):
            is_for_all = turn < 0 or not turn % COMPARED_TURNS
            now = names if is_for_all else list(COMPARED)
            shift = turn % len(now)
            for name in now[shift:] + now[:shift]:  # nobody is always first
                seconds[name][turn] = turns[name].run()
            progress("turns", turn + 1, rounds * COMPARED_TURNS)
        every = watched.close()
    return WatchOverhead(
        costs=tuple(_cost(name, seconds, tokens) for name in names),
        skipped={name: reason for name, reason in NEEDS_GPU.items() if name not in names},
        every=every,
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


class _Watched:
    """A model that is watched into one recording, which goes on in its turns alone."""

    def __init__(self, model: Any, path: Path) -> None:
        self.model = model
        self._recorder = record(path, force=True)
        self._watch = watch(model, recorder=self._recorder)
        self._recorder.pause()

    @contextlib.contextmanager
    def turn(self) -> Iterator[Finish]:
        self._recorder.resume()
        yield self._write
        self._recorder.pause()

    def _write(self) -> None:
        is_written = self._recorder.flush(WRITE_SECONDS)
        assert is_written, self._recorder.stopped

    def close(self) -> int:
        """One forward in how many was read at last."""
        self._watch.close()
        self._recorder.resume()
        self._recorder.close()
        return self._watch.pace.every


@contextlib.contextmanager
def _history() -> Iterator[Finish]:
    """As ``--history`` has it."""
    start_history(torch, HISTORY_ENTRIES)
    yield _nothing
    stop_history(torch)


@contextlib.contextmanager
def _profiler() -> Iterator[Finish]:
    with torch.profiler.profile(profile_memory=True):
        yield _nothing


@contextlib.contextmanager
def _nobody() -> Iterator[Finish]:
    yield _nothing


BESIDE = {HISTORY: _history, PROFILER: _profiler}


class _Turn:
    """One variant, which decodes ``tokens`` at a time from the same context."""

    def __init__(
        self,
        model: Any,
        name: str,
        tokens: int,
        device: str,
        beside: Callable[[], AbstractContextManager[Finish]] | None = None,
    ) -> None:
        """``beside``: what records; by the variant's name where it is not given."""
        self._model, self._tokens, self._device = model, tokens, device
        self._beside = beside or BESIDE.get(name, _nobody)
        self._prompt = torch.ones((1, CONTEXT), dtype=torch.long, device=device)
        hooks = {EMPTY: lambda *_: None, COUNTER: lambda *_: _read_allocated()}
        if name in hooks:
            for layer in model.model.layers:
                layer.register_forward_hook(hooks[name])

    def run(self) -> float:
        """Seconds of the tokens, and of what recording them leaves to do."""
        cache = self._model(self._prompt, use_cache=True, logits_to_keep=1).past_key_values
        inputs = self._prompt[:, :1]
        self._wait()
        with self._beside() as finish:
            start_ns = perf_counter_ns()
            for _ in range(self._tokens):
                self._model(inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
            self._wait()
            finish()
            return (perf_counter_ns() - start_ns) / 1e9

    def _wait(self) -> None:
        if self._device.startswith("cuda"):
            torch.cuda.synchronize()


def _nothing() -> None:
    """Nothing is left to do."""


def _read_allocated() -> None:
    torch.cuda.memory_allocated()


def _cost(name: str, seconds: dict[str, dict[int, float]], tokens: int) -> Cost:
    """Of all turns but the first; ratios are of turns beside each other."""
    mine = {turn: taken for turn, taken in seconds[name].items() if turn >= 0}

    def over(other: str) -> Median:
        return median_with_interval([mine[turn] / seconds[other][turn] for turn in mine])

    ms_per_token = median_with_interval([taken / tokens * 1e3 for taken in mine.values()])
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The script's options."""
    add_window_options(parser, takes_model=False)


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    check_window_options(args)
    device = named_device(args)
    device = "cpu" if device == "host" else device
    with ProgressBars() as bars:
        overhead = measure(
            rounds=args.rounds, tokens=args.tokens, device=device, progress=bars.update
        )
    show(args, overhead.to_json(), [overhead.table()])
    return 0


if __name__ == "__main__":
    sys.exit(run_script(__doc__, add_arguments, run))
