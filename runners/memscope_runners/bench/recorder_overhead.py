"""What recording costs: an event, a guard, a byte on disk, and a decoded token."""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
import tempfile
import threading
import time
import timeit
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from typing import Any, cast
from unittest import mock

import torch

from memscope.events import Kind
from memscope.format.frames import BatchEncoder, event_schema
from memscope.format.header import new_header
from memscope.launch.record import record
from memscope.reader.recording import Recording
from memscope.recorder import recorder as writer
from memscope.recorder.emitter import Emitter
from memscope.recorder.recorder import FLUSH_ROWS, FLUSH_SECONDS, THREAD_NAME, Recorder
from memscope.recorder.rows import Row, encode_rows, make_emit
from memscope_runners.bench.intervals import Median, median_with_interval
from memscope_runners.decoder import Decoder
from memscope_runners.q8.weights import CheckpointSource
from memscope_runners.settings import Settings

TURN_TOKENS = 16
HALF_SECONDS = 2.2 * FLUSH_SECONDS  # at least, in turns
CONTEXT_TOKENS = 1600
EVENTS = 20_000
REPEATS = 15
MOST_PAIRS = 24  # of a context
WARM_UP_TURNS = 2
WRITE_SECONDS = 60.0
IDLE_SECONDS = 3.0
PROMPT = "The capital of France is"
LIMITS = {
    "emit_ns": 500.0,
    "guard_ns": 15.0,
    "bytes_per_event": 8.0,
    "recorded_ratio": 1.03,
}


@dataclass(frozen=True, slots=True)
class Overhead:
    """The results of one run of the benchmark."""

    emit_ns: float
    guard_ns: float
    encode_ns: float
    sampler_share: float
    bytes_per_event: float
    rows_a_batch: float
    events_per_token: float
    ms_per_token: float
    tokens_a_half: int
    recorded_ratio: Median
    computed_ratio: float
    dropped_rows: int
    threads: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"limits": LIMITS}

    def rows(self) -> list[tuple[str, str, str]]:
        """What, how much, and the bound, as a table's rows."""
        return [
            ("emit, ns an event", f"{self.emit_ns:.0f}", "≤ 500"),
            ("guard, ns", f"{self.guard_ns:.1f}", "≤ 15"),
            ("writer thread, ns an event", f"{self.encode_ns:.0f}", ""),
            ("writer thread while nothing happens", f"{self.sampler_share:.2%} of a core", ""),
            (
                f"bytes an event at {self.rows_a_batch:,.0f} rows a batch",
                f"{self.bytes_per_event:.2f}",
                "≤ 8",
            ),
            ("events a token", f"{self.events_per_token:.0f}", ""),
            ("ms a token, not recorded", f"{self.ms_per_token:.2f}", ""),
            ("recorded / not recorded", str(self.recorded_ratio), "≤ 1.03"),
            ("the same, computed from the costs above", f"{self.computed_ratio:.4f}", ""),
            ("rows dropped", str(self.dropped_rows), "0"),
        ]


def measure(
    checkpoint: CheckpointSource,
    settings: Settings,
    *,
    pairs: int,
    progress: Callable[[str, int, int], None],
) -> Overhead:
    """All of it; the decoder alternates between recorded and not, every 16 tokens."""
    emit_ns, guard_ns = measure_emit(), measure_guard()
    with tempfile.TemporaryDirectory(prefix="memscope-bench-") as folder:
        halves = Halves(checkpoint, settings, Path(folder))
        ratios = halves.run(pairs, progress)
        sampler_share = measure_sampler(Path(folder))
    bytes_per_event, encode_ns = measure_encoding(halves.warm_up_rows)
    events_per_token = halves.recorded_rows / (len(halves.plain_ns) * halves.tokens)
    ns_per_token = statistics.median(halves.plain_ns) / halves.tokens
    return Overhead(
        emit_ns=emit_ns,
        guard_ns=guard_ns,
        encode_ns=encode_ns,
        sampler_share=sampler_share,
        bytes_per_event=bytes_per_event,
        rows_a_batch=min(len(halves.warm_up_rows), FLUSH_ROWS),
        events_per_token=events_per_token,
        ms_per_token=ns_per_token / 1e6,
        tokens_a_half=halves.tokens,
        recorded_ratio=ratios,
        computed_ratio=1 + events_per_token * (emit_ns + encode_ns) / ns_per_token + sampler_share,
        dropped_rows=halves.dropped_rows,
        threads=torch.get_num_threads(),
    )


def measure_emit() -> float:
    """ns that recording one event costs the caller, above an empty loop."""
    with tempfile.TemporaryDirectory() as folder, Recorder(f"{folder}/emit.mscope") as recorder:
        emit = recorder.emit

        def emit_all() -> None:
            for number in itertools.repeat(7, EVENTS):
                emit(Kind.LAYER, number, number, duration_ns=number)

        return max(_ns_an_event(emit_all) - _ns_an_event(_empty_loop), 0.0)


def measure_guard() -> float:
    """ns that `if recorder is not None` costs when nothing is recorded."""
    recorder = None

    def guard_all() -> None:
        for _ in itertools.repeat(7, EVENTS):
            if recorder is not None:
                raise AssertionError

    return max(_ns_an_event(guard_all) - _ns_an_event(_empty_loop), 0.0)


def measure_sampler(folder: Path) -> float:
    """CPU seconds per second that the recorder's thread uses for its readings."""
    with record(folder / "idle.mscope") as recorder:
        recorder.flush(WRITE_SECONDS)  # the first readings set things up
        thread = next(each for each in threading.enumerate() if each.name == THREAD_NAME)
        assert thread.ident is not None
        clock = time.pthread_getcpuclockid(thread.ident)
        started_s = time.clock_gettime(clock)
        time.sleep(IDLE_SECONDS)
        return (time.clock_gettime(clock) - started_s) / IDLE_SECONDS


def _empty_loop() -> None:
    for _ in itertools.repeat(7, EVENTS):
        pass


def _ns_an_event(call: Callable[[], None]) -> float:
    seconds = timeit.repeat(call, number=1, repeat=REPEATS)
    return statistics.median(seconds) / EVENTS * 1e9


class Halves:
    """Two decoders at the same position, one recorded, that take turns every 16 tokens.

    Machines drift, so that turns are short; batches are seldom, so that a half is the sum of as
    many turns as last for two of them. The recorder's thread goes on where it was in the next
    recorded turn: it costs as much there as in a program that is recorded throughout. (Readings
    that are paced by the wall clock, such as RSS, come up to twice as often.)
    """

    def __init__(self, checkpoint: CheckpointSource, settings: Settings, folder: Path) -> None:
        self._checkpoint, self._settings, self._folder = checkpoint, settings, folder
        self._prompt = checkpoint.tokenizer.encode(PROMPT)
        self._turns = self._choose_turns()
        self.tokens = self._turns * TURN_TOKENS
        self.warm_up_rows: list[Row] = []
        self.plain_ns: list[int] = []
        self.recorded_rows = self.dropped_rows = 0

    def run(self, pairs: int, progress: Callable[[str, int, int], None]) -> Median:
        """Median ratio, recorded over not recorded, of `pairs` halves that took turns."""
        ratios: list[float] = []
        most = min(max(CONTEXT_TOKENS // self.tokens, 1), MOST_PAIRS)
        while len(ratios) < pairs:
            for ratio in self._run_context(min(most, pairs - len(ratios))):
                ratios.append(ratio)
                progress(f"pairs of {self.tokens} tokens", len(ratios), pairs)
        return median_with_interval(ratios)

    def _choose_turns(self) -> int:
        """Turns of a half, by the speed of one that is not recorded."""
        decoder = Decoder(self._checkpoint, self._settings, len(self._prompt) + 2 * TURN_TOKENS)
        walk = Walk(decoder, self._prompt)
        walk.take_turn()
        seconds = walk.take_turn() / 1e9
        decoder.close()
        return math.ceil(HALF_SECONDS / seconds)

    def _run_context(self, pairs: int) -> Iterator[float]:
        tokens = len(self._prompt) + (WARM_UP_TURNS + pairs * self._turns) * TURN_TOKENS
        switch = Emitter(make_emit(self.warm_up_rows)[0])  # whose rows go elsewhere later
        plain = Decoder(self._checkpoint, self._settings, tokens)
        recorded = Decoder(self._checkpoint, self._settings, tokens, cast(Recorder, switch))
        walks = Walk(plain, self._prompt), Walk(recorded, self._prompt)
        for walk in walks * WARM_UP_TURNS:
            walk.take_turn()
        clock = RecordedClock()
        with mock.patch.object(writer, "time", clock):
            recorder = record(self._folder / "context.mscope", force=True)
            recorder.flush(WRITE_SECONDS)  # the first readings set things up
            switch.emit = recorder.emit
            clock.stop()
            try:
                for _ in range(pairs):
                    plain_ns, recorded_ns = self._run_pair(*walks, clock)
                    self.plain_ns.append(plain_ns)
                    yield recorded_ns / plain_ns
            finally:  # the recorder's thread would hold up the exit for good
                switch.emit, _ = make_emit([])
                clock.go_on()
                recorder.close()
            plain.close()
            recorded.close()
            self._count_rows(recorder)

    def _run_pair(self, plain: Walk, recorded: Walk, clock: RecordedClock) -> tuple[int, int]:
        plain_ns = recorded_ns = 0
        for turn in range(self._turns):
            if turn % 2:
                plain_ns += plain.take_turn()
            with clock.going():
                recorded_ns += recorded.take_turn()
            if not turn % 2:
                plain_ns += plain.take_turn()
        return plain_ns, recorded_ns

    def _count_rows(self, recorder: Recorder) -> None:
        self.dropped_rows += recorder.dropped_rows
        with Recording(recorder.path) as recording:
            self.recorded_rows += recording.state.rows


class Walk:
    """A decoder that continues its prompt."""

    def __init__(self, decoder: Decoder, prompt_ids: list[int]) -> None:
        self._decoder = decoder
        self._inputs = prompt_ids
        self._step = 0

    def take_turn(self) -> int:
        """Decode 16 tokens; how long that took, in ns."""
        started_ns = perf_counter_ns()
        for _ in range(TURN_TOKENS):
            self._inputs = [self._decoder.run_step(self._step, self._inputs).token]
            self._step += 1
        return perf_counter_ns() - started_ns


class RecordedClock:
    """`time` for the recorder's thread: while it is stopped, it stands still and holds that up."""

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._stopped_at = self._away_seconds = 0.0

    def monotonic(self) -> float:
        """Seconds that were recorded, from an arbitrary moment."""
        with self._gate:
            return time.monotonic() - self._away_seconds

    @contextlib.contextmanager
    def going(self) -> Iterator[None]:
        """It goes on for as long as this lasts, and is stopped before and after."""
        self.go_on()
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """Nothing is recorded for now."""
        self._gate.acquire()
        self._stopped_at = time.monotonic()

    def go_on(self) -> None:
        """From where it stopped."""
        self._away_seconds += time.monotonic() - self._stopped_at
        self._gate.release()


def measure_encoding(rows: list[Row]) -> tuple[float, float]:
    """Bytes on disk and the writer's ns an event, of `rows` in full batches."""
    schema = event_schema(new_header())
    encoder, size, started_ns = BatchEncoder(schema), 0, thread_time_ns()
    for sequence, first in enumerate(range(0, len(rows), FLUSH_ROWS), 1):
        batch = encode_rows(rows[first : first + FLUSH_ROWS], 0, schema)
        size += len(encoder.encode(batch, sequence=sequence, first_row=first))
    return size / len(rows), (thread_time_ns() - started_ns) / len(rows)
