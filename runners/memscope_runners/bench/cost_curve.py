"""What a smaller window costs: ms a token and uploads against bytes, for every policy."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from memscope.errors import MemscopeError
from memscope.units import format_bytes
from memscope_runners.bench.decoding import Run, metric_values, run_decoder, run_recorded
from memscope_runners.bench.machine import describe_machine, measure_link
from memscope_runners.memory.choice import make_device
from memscope_runners.memory.device import Device
from memscope_runners.memory.host_slabs import HostSlabs, open_host_slabs
from memscope_runners.memory.policies import make_policy
from memscope_runners.q8.weights import CheckpointSource
from memscope_runners.settings import Settings

REFERENCE_LAYERS = 28
PAST_KEEPS = (27, 26, 20, 12, 4, 1)
PINNED_KEEPS = (26, 24, 20, 12, 8, 4, 2)  # 24, 8 and 2 have the peaks of past 12, 4 and 1
OTHER_KEEPS = (27, 20, 12, 4)
METRICS = (
    "residency.entries_at_step_end",
    "residency.peak_entries",
    "residency.uploads_per_step",
    "driver.calls_per_step",
)


@dataclass(frozen=True, slots=True)
class CurveRow:
    """One setting. `link_ratio`: upload bytes / time a token / the rate of back-to-back copies.

    `bound_ratio`: ms a token over the larger of the resident model's and what the link needs.
    `peak_bytes`: weights, KV cache and norms on the device.
    """

    policy: str
    keep: int | None
    prefetch: bool
    entries_at_step_end: float | None
    peak_entries: float | None
    peak_bytes: int
    resident_ratio: float | None
    uploads_per_step: float | None
    ms_per_token: float
    slowdown: float
    link_ratio: float | None
    bound_ratio: float
    driver_calls_per_step: float | None
    token_ids_crc: int
    is_outcome_same: bool


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Every row, on one machine, with the rate of copies measured between the runs."""

    machine: dict[str, Any]
    model: str
    slab_bytes: int
    tokens: int
    rounds: int
    link_bytes_per_s: float | None
    rows: tuple[CurveRow, ...]

    def to_json(self) -> dict[str, Any]:
        rate = self.link_bytes_per_s
        return {
            "machine": self.machine,
            "model": self.model,
            "slab_bytes": self.slab_bytes,
            "tokens": self.tokens,
            "rounds": self.rounds,
            "pinned_copy_gb_per_s": None if rate is None else rate / 1e9,
            "pinned_copy_reason": "on the host a copy crosses no link" if rate is None else None,
            "rows": [asdict(row) for row in self.rows],
        }

    def table(self) -> Iterator[tuple[str, ...]]:
        """A head and one line a row, as text."""
        yield (
            "policy", "keep", "ahead", "entries", "peak", "peak bytes", "uploads", "ms/token",
            "slowdown", "of the link", "of the bound", "same",
        )  # fmt: skip
        for row in self.rows:
            yield (
                row.policy,
                "" if row.keep is None else str(row.keep),
                "yes" if row.prefetch else "no",
                _number(row.entries_at_step_end, 0),
                _number(row.peak_entries, 0),
                format_bytes(row.peak_bytes),
                _number(row.uploads_per_step, 1),
                _number(row.ms_per_token, 2),
                _number(row.slowdown, 2),
                "" if row.link_ratio is None else f"{row.link_ratio:.1%}",
                _number(row.bound_ratio, 3),
                "yes" if row.is_outcome_same else "NO",
            )


def default_settings(layers: int) -> list[Settings]:
    """Seven windows under `past`, then every policy; `keep` in proportion to 28 layers."""
    settings = [Settings("off", prefetch=False)]
    for prefetch in (False, True):
        settings += [
            Settings("past", keep, prefetch=prefetch) for keep in _keeps(PAST_KEEPS, layers)
        ]
    settings += [Settings("pinned", keep) for keep in _keeps(PINNED_KEEPS, layers)]
    for policy in ("symmetric", "lru"):
        settings += [Settings(policy, keep) for keep in _keeps(OTHER_KEEPS, layers)]
    return settings


def parse_setting(text: str) -> Settings:
    """Parse a setting like off, past:20, pinned:12 or past:20:ahead. Raises MemscopeError."""
    policy, *rest = text.split(":")
    ahead = rest[1:] in ([], ["ahead"]) and len(rest) == 2
    try:
        keep = int(rest[0]) if rest else None
    except ValueError:
        keep = -1
    if len(rest) > 2 or (len(rest) == 2 and not ahead) or (keep is not None and keep < 0):
        raise MemscopeError(
            f"{text!r} is no setting.", "Write it like off, past:20, past:20:ahead."
        )
    return Settings(policy, keep, prefetch=ahead)


class Curve:
    """Runs of several settings on one device, in turn, so noise hits all of them alike."""

    def __init__(self, checkpoint: CheckpointSource, device: Device, tokens: int) -> None:
        self._checkpoint, self._device, self._tokens = checkpoint, device, tokens
        self._link: list[float] = []

    def measure(
        self, settings: Sequence[Settings], rounds: int, progress: Callable[[str, int, int], None]
    ) -> CostCurve:
        """One recorded run of each setting for its metrics, then `rounds` timed runs."""
        host = open_host_slabs(self._checkpoint, self._device, progress=progress)
        try:
            return self._measure(settings, rounds, progress, host)
        finally:
            host.close()

    def _measure(
        self,
        settings: Sequence[Settings],
        rounds: int,
        progress: Callable[[str, int, int], None],
        host: HostSlabs,
    ) -> CostCurve:
        checkpoint, done, total = self._checkpoint, 0, len(settings) * (rounds + 1)
        values, runs = [], []
        timed: list[list[Run]] = [[] for _ in settings]
        for each in settings:
            run, timeline = run_recorded(checkpoint, each, host, self._tokens)
            runs.append(run)
            values.append(metric_values(timeline, METRICS))
            progress("runs", done := done + 1, total)
        for _ in range(rounds):
            self._time_link(host)
            for index, each in enumerate(settings):
                timed[index].append(run_decoder(checkpoint, each, host, self._tokens))
                progress("runs", done := done + 1, total)
        self._time_link(host)
        rate = statistics.median(self._link) if self._link else None
        rows = self._rows(settings, runs, values, timed, rate)
        return CostCurve(
            describe_machine(self._device),
            checkpoint.name,
            checkpoint.layer_layout.bytes,
            self._tokens,
            rounds,
            rate,
            tuple(rows),
        )

    def _time_link(self, host: HostSlabs) -> None:
        slabs = [host.slab(layer) for layer in range(self._checkpoint.config.layers)]
        rate = measure_link(self._device, slabs)
        if rate is not None:
            self._link.append(rate)

    def _rows(
        self,
        settings: Sequence[Settings],
        runs: Sequence[Run],
        values: Sequence[dict[str, float | None]],
        timed: Sequence[Sequence[Run]],
        rate: float | None,
    ) -> Iterator[CurveRow]:
        config, slab_bytes = self._checkpoint.config, self._checkpoint.layer_layout.bytes
        entries = config.layers * len(self._checkpoint.layer_layout.entries) + 1
        times = [statistics.median(run.ms_per_token for run in each) for each in timed]
        resident_ms = next(
            (ms for each, ms in zip(settings, times, strict=True) if each.policy == "off"),
            min(times),
        )
        for each, run, value, again, ms in zip(settings, runs, values, timed, times, strict=True):
            uploads, held = value["residency.uploads_per_step"], value[METRICS[0]]
            link_ms = None if rate is None else (uploads or 0) * slab_bytes / rate * 1e3
            yield CurveRow(
                policy=each.policy,
                keep=each.keep,
                prefetch=each.prefetch,
                entries_at_step_end=held,
                peak_entries=value["residency.peak_entries"],
                peak_bytes=run.peak_bytes,
                resident_ratio=None if held is None else held / entries,
                uploads_per_step=uploads,
                ms_per_token=ms,
                slowdown=ms / resident_ms,
                link_ratio=link_ms / ms if link_ms else None,
                bound_ratio=ms / max(resident_ms, link_ms or 0),
                driver_calls_per_step=value["driver.calls_per_step"],
                token_ids_crc=run.token_ids_crc,
                is_outcome_same=all(one.outcome == runs[0].outcome for one in (run, *again)),
            )


def measure_curve(
    checkpoint: CheckpointSource,
    device_name: str,
    settings: Sequence[Settings],
    *,
    tokens: int,
    rounds: int,
    progress: Callable[[str, int, int], None],
) -> CostCurve:
    """Measure all settings on the device `name`. Raises MemscopeError."""
    for each in settings:
        make_policy(each.policy, checkpoint.config.layers, each.keep)
    device = make_device(device_name)
    settings = [replace(each, device=device_name) for each in settings]
    try:
        return Curve(checkpoint, device, tokens).measure(settings, rounds, progress)
    finally:
        device.close()


def _keeps(keeps: Sequence[int], layers: int) -> list[int]:
    scaled = (min(max(round(keep * layers / REFERENCE_LAYERS), 1), layers) for keep in keeps)
    return list(dict.fromkeys(scaled))


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
