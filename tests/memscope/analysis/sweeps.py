"""Events of a decoder that sweeps over its layers, by the policies' rules written down anew."""

from __future__ import annotations

from dataclasses import dataclass, field

from memscope.events import Kind
from tests.memscope.analysis.build import Event, event, fact

ENTRIES = 7
SLAB_BYTES = 700
HEAD_BYTES = 90
STEP_NS = 1000


@dataclass
class Sweeps:
    """A run of ``policy`` over ``layers`` layers; `run` gives its events in the file's order."""

    policy: str
    layers: int
    keep: int
    is_prefetching: bool = False
    unit: str = "slab"
    allocator: str = "pool"
    rows: list[Event] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    idle: int = 0
    now: int = 0
    allocated: int = 0
    peak: int = 0

    def run(self, steps: int) -> list[Event]:
        self._facts()
        self._upload(0, self.layers)
        for step in range(steps):
            self._sweep(step)
        return self.rows

    def _facts(self) -> None:
        self.rows += [
            fact("run.kind", "q8-decode"),
            fact("run.warmup_steps", 2),
            fact("model", {"layers": self.layers, "entries_per_layer": ENTRIES}),
            fact("policy", {"policy": self.policy, "keep": self.keep, "allocator": self.allocator}),
            fact("device.0", {"name": "host", "kind": "host", "total_bytes": 1 << 40}),
        ]

    def _sweep(self, step: int) -> None:
        for layer in range(self.layers):
            for other in self._evicted(layer):
                self._evict(step, other)
            if layer not in self.resident:
                self._upload(step, layer)
            self._emit(Kind.LAYER, step, layer)
            following = (layer + 1) % self.layers
            if self.is_prefetching and following not in self.resident:
                self._upload(step + (following == 0), following)
        self._emit(Kind.LAYER, step, self.layers)
        self._emit(Kind.WAIT, step, 0, duration_ns=STEP_NS // 10)
        self._sample(step, "device.allocated_bytes", self.allocated)
        self._sample(step, "device.peak_bytes", self.peak)
        self._sample(step, "pool.idle_bytes", self.idle * SLAB_BYTES)
        if self.is_prefetching:
            self._sample(step, "residency.in_flight_bytes", SLAB_BYTES)
        self.rows.append(event(Kind.STEP, self.now, step=step, duration_ns=STEP_NS))

    def _evicted(self, layer: int) -> list[int]:
        lowest = layer - self.keep + 1
        if self.policy == "past":
            return [other for other in self.resident if other < lowest]
        if self.policy == "symmetric":
            return [other for other in self.resident if other < lowest or other > layer + 1]
        if self.policy == "lru" and layer not in self.resident:
            return self.resident[: max(len(self.resident) - self.keep + 1, 0)]
        if self.policy == "pinned" and layer not in self.resident:
            ring = [other for other in self.resident if other not in self._fixed()]
            return [] if layer in self._fixed() else ring[: max(len(ring) - self._ring() + 1, 0)]
        return []

    def _ring(self) -> int:
        return min(2, self.keep)

    def _fixed(self) -> set[int]:
        count = self.keep - self._ring()
        return {number * self.layers // count for number in range(count)}

    def _upload(self, step: int, layer: int) -> None:
        size = HEAD_BYTES if layer == self.layers else SLAB_BYTES
        if self.idle and layer != self.layers:
            self.idle -= 1
            self._emit(Kind.POOL_HIT, step, layer, name="slab", bytes=size)
        else:
            if self.allocator == "pool":
                self._emit(Kind.POOL_MISS, step, layer, name="slab", bytes=size)
            self.allocated += size
            self.peak = max(self.peak, self.allocated)
            self._emit(Kind.DEVICE_MALLOC, step, layer, name="weight_pool", bytes=size)
        if layer == self.layers:
            self._emit(Kind.UPLOAD, step, layer, bytes=size, value=1)
            return
        self.resident.append(layer)
        parts = ENTRIES if self.unit == "entry" else 1
        for _ in range(parts):
            self._emit(
                Kind.UPLOAD,
                step,
                layer,
                bytes=size // parts,
                value=ENTRIES // parts,
                duration_ns=10,
            )

    def _evict(self, step: int, layer: int) -> None:
        self.resident.remove(layer)
        data = {"reason": "window"}
        self._emit(Kind.EVICT, step, layer, bytes=SLAB_BYTES, value=ENTRIES, data=data)
        if self.allocator == "pool":
            self.idle += 1
            self._emit(Kind.POOL_RETURN, step, layer, name="slab", bytes=SLAB_BYTES)
        else:
            self.allocated -= SLAB_BYTES
            self._emit(Kind.DEVICE_FREE, step, layer, name="weight_pool", bytes=SLAB_BYTES)

    def _sample(self, step: int, reading_name: str, size: int) -> None:
        self._emit(Kind.SAMPLE, step, -1, name=reading_name, bytes=size)

    def _emit(self, kind: int, step: int, layer: int, **fields: object) -> None:
        self.now += 1
        self.rows.append(event(kind, self.now, step=step, layer=layer, **fields))


def run_sweeps(
    policy: str, layers: int, keep: int, steps: int = 5, **options: object
) -> list[Event]:
    """Events of ``steps`` sweeps, two of them warm-up."""
    return Sweeps(policy, layers, keep, **options).run(steps)  # type: ignore[arg-type]
