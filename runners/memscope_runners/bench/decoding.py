"""One run of the decoder for a benchmark: its tokens, step times and metrics."""

from __future__ import annotations

import statistics
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter_ns

from memscope.analysis.metrics.table import metrics
from memscope.analysis.timeline.read import read_timeline
from memscope.analysis.timeline.timeline import Timeline
from memscope.launch.record import record
from memscope.reader.recording import Recording
from memscope.recorder.recorder import Recorder
from memscope_runners.decoder import Decoder, Step
from memscope_runners.memory.host_slabs import HostSlabs
from memscope_runners.q8.weights import CheckpointSource
from memscope_runners.run_facts import WARMUP_STEPS
from memscope_runners.settings import Settings

PROMPT_IDS = tuple(range(40, 56))


@dataclass(frozen=True, slots=True)
class Run:
    """Token ids, one CRC-32 a step of its logits, and ns from step end to step end, warmed up."""

    token_ids: tuple[int, ...]
    logits_crcs: tuple[int, ...]
    intervals_ns: tuple[int, ...]
    peak_bytes: int  # of the device: weights, KV cache, norms

    @property
    def ms_per_token(self) -> float:
        return statistics.median(self.intervals_ns) / 1e6

    @property
    def token_ids_crc(self) -> int:
        return zlib.crc32(repr(self.token_ids).encode())

    @property
    def outcome(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The part of the result that no setting may change."""
        return self.token_ids, self.logits_crcs


def run_decoder(
    checkpoint: CheckpointSource,
    settings: Settings,
    host: HostSlabs,
    tokens: int,
    recorder: Recorder | None = None,
) -> Run:
    """`tokens` new tokens on a fresh device; CRCs are taken when the clock has stopped."""
    length = len(PROMPT_IDS) + tokens
    decoder = Decoder(checkpoint, settings, length, recorder, host=host)
    try:
        if settings.is_preloading:
            decoder.residency.preload()
        steps, ends_ns = _run_steps(decoder, tokens)
        return Run(
            tuple(step.token for step in steps),
            tuple(step.logits_crc for step in steps),
            tuple(end - start for start, end in pairwise(ends_ns[WARMUP_STEPS - 1 :])),
            decoder.device.peak_bytes,
        )
    finally:
        decoder.close()


def run_recorded(
    checkpoint: CheckpointSource, settings: Settings, host: HostSlabs, tokens: int
) -> tuple[Run, Timeline]:
    """The same run recorded, with its recording's metrics."""
    with tempfile.TemporaryDirectory(prefix="memscope-bench-") as folder:
        path = Path(folder) / "run.mscope"
        with record(path) as recorder:
            run = run_decoder(checkpoint, settings, host, tokens, recorder)
        with Recording(path) as recording:
            return run, read_timeline(recording)


def metric_values(timeline: Timeline, names: Sequence[str]) -> dict[str, float | None]:
    """Metrics by their names."""
    measured = metrics(timeline)
    return {name: measured[name].value for name in names}


def _run_steps(decoder: Decoder, tokens: int) -> tuple[list[Step], list[int]]:
    inputs, steps, ends_ns = list(PROMPT_IDS), [], []
    for number in range(tokens):
        step = decoder.run_step(number, inputs)
        ends_ns.append(perf_counter_ns())
        steps.append(step)
        inputs = [step.token]
    return steps, ends_ns
