"""A model on a device, one step after the other."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING

import torch

from memscope import events
from memscope.errors import OutOfMemory
from memscope.plan import Needs, Plan, Window, advice
from memscope_runners.memory.allocators import make_allocator
from memscope_runners.memory.device import Buffer, Device, DeviceOutOfMemory, HostDevice
from memscope_runners.memory.driver import Driver
from memscope_runners.memory.policies import make_policy
from memscope_runners.memory.residency import Residency
from memscope_runners.q8.kv_cache import KvCache
from memscope_runners.q8.model import Model
from memscope_runners.q8.sampler import greedy
from memscope_runners.q8.slab import SlabLayout
from memscope_runners.q8.weights import CheckpointSource
from memscope_runners.run_facts import record_facts
from memscope_runners.settings import Settings

if TYPE_CHECKING:
    from memscope.writer import Recorder

ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class Step:
    """One step's token, the CRC-32 of its float32 logits, and its duration."""

    token: int
    logits_crc: int
    duration_ns: int


@dataclass(slots=True)
class Decoded:
    """What came out: new token ids, and for each step the CRC-32 of its float32 logits."""

    prompt_ids: list[int]
    token_ids: list[int] = field(default_factory=list)
    logits_crcs: list[int] = field(default_factory=list)
    durations_ns: list[int] = field(default_factory=list)
    text: str = ""

    def add(self, step: Step) -> None:
        """Another step is done."""
        self.token_ids.append(step.token)
        self.logits_crcs.append(step.logits_crc)
        self.durations_ns.append(step.duration_ns)


@dataclass(frozen=True, slots=True)
class PlacedSource:
    """A checkpoint whose fixed part lies on the device."""

    layer_layout: SlabLayout
    head_layout: SlabLayout
    fixed: Mapping[str, torch.Tensor]
    slab: Callable[[int], torch.Tensor]


class Decoder:
    """A model on a device, for one request of up to `tokens` positions."""

    def __init__(
        self,
        checkpoint: CheckpointSource,
        settings: Settings,
        tokens: int,
        recorder: Recorder | None = None,
    ) -> None:
        """Raises MemscopeError for settings that make no sense, OutOfMemory where nothing fits."""
        config = checkpoint.config
        policy = make_policy(settings.policy, config.layers, settings.keep)
        self._checkpoint, self._settings, self._recorder = checkpoint, settings, recorder
        self.device = HostDevice(limit_bytes=settings.device_limit_bytes)
        self._allocator = make_allocator(settings.allocator, self.device, recorder)
        self.plan = plan_decode(checkpoint, settings, self.device, tokens)
        self._buffers: list[tuple[Driver, Buffer]] = []
        self._residency: Residency | None = None
        if recorder is not None:
            record_facts(recorder, checkpoint, settings, self.device, self.plan)
        try:
            with self._reporting_oom(-1):
                memory = self._take("fixed", fixed_bytes(checkpoint.fixed))
                self._kv = KvCache(self._take("kv", self.plan.needs.kv_bytes), config, tokens)
        except OutOfMemory:
            self.close()
            raise
        fixed = place_fixed(checkpoint.fixed, memory)
        source = PlacedSource(
            checkpoint.layer_layout, checkpoint.head_layout, fixed, checkpoint.slab
        )
        self._residency = Residency(
            source,
            self.device,
            self._allocator,
            policy,
            unit=settings.unit,
            prefetch=settings.prefetch,
            poison=settings.poison,
            recorder=recorder,
        )
        self._model = Model(config, fixed, self._residency)

    def generate(
        self,
        prompt_ids: Sequence[int],
        *,
        max_tokens: int,
        ignore_eos: bool = False,
        on_token: Callable[[int], None] | None = None,
    ) -> Decoded:
        """Continues `prompt_ids` greedily. Raises OutOfMemory."""
        decoded = Decoded(list(prompt_ids))
        ends = () if ignore_eos else self._checkpoint.config.eos_token_ids
        if self._settings.is_preloading:
            with self._reporting_oom(0):
                self.residency.preload()
        inputs = decoded.prompt_ids
        for step in range(max_tokens):
            done = self.run_step(step, inputs)
            decoded.add(done)
            if on_token is not None:
                on_token(done.token)
            if done.token in ends:
                break
            inputs = [done.token]
        return decoded

    @property
    def residency(self) -> Residency:
        """The window, for tests that look inside."""
        assert self._residency is not None
        return self._residency

    def close(self) -> None:
        """Releases everything that the device handed out."""
        if self._residency is not None:
            self._residency.close()
        else:
            self._allocator.close()
        for driver, buffer in self._buffers:
            driver.free(buffer)
        self._buffers.clear()
        self.device.close()

    def run_step(self, step: int, inputs: Sequence[int]) -> Step:
        """One sweep over the layers, continuing with `inputs`. Raises OutOfMemory."""
        started_ns = perf_counter_ns()
        with self._reporting_oom(step):
            self.residency.begin_step(step)
            logits = self._model.forward(inputs, self._kv)
            token = greedy(logits)
            self.residency.end_step()
        duration_ns = perf_counter_ns() - started_ns
        if self._recorder is not None:
            self._recorder.sample("kv.used_bytes", bytes=self._kv.used_bytes, step=step)
            self._recorder.emit(events.STEP, step, duration_ns=duration_ns)
        return Step(token, zlib.crc32(logits.numpy().tobytes()), duration_ns)

    def _take(self, owner: str, size: int) -> torch.Tensor:
        driver = Driver(self.device, owner, self._recorder)
        buffer = driver.malloc(size)
        self._buffers.append((driver, buffer))
        return self.device.tensor(buffer)

    @contextlib.contextmanager
    def _reporting_oom(self, step: int) -> Iterator[None]:
        try:
            yield
        except DeviceOutOfMemory as error:
            if self._recorder is not None:
                self._recorder.emit(events.OOM, step, bytes=error.requested, data=error.figures())
            message = f"Out of memory on {self.device.name}: {error}."
            raise OutOfMemory(message, advice(self.plan)) from None


def plan_decode(
    checkpoint: CheckpointSource, settings: Settings, device: Device, tokens: int
) -> Plan:
    needs = Needs(
        layers=checkpoint.config.layers,
        slab_bytes=checkpoint.layer_layout.bytes,
        head_bytes=checkpoint.head_layout.bytes,
        kv_bytes=KvCache.bytes_for(checkpoint.config, tokens),
        fixed_bytes=fixed_bytes(checkpoint.fixed),
    )
    window = Window(settings.policy, settings.keep, settings.prefetch)
    return Plan(needs, window, device.limit_bytes)


def place_fixed(fixed: Mapping[str, torch.Tensor], memory: torch.Tensor) -> dict[str, torch.Tensor]:
    """`fixed` copied into `memory`, uint8 of `fixed_bytes`, as views of it."""
    placed, start = {}, 0
    for name, tensor in fixed.items():
        view = memory[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        placed[name] = view.copy_(tensor)
        start += _aligned(tensor.nbytes)
    return placed


def fixed_bytes(fixed: Mapping[str, torch.Tensor]) -> int:
    """Bytes of the norms and of an untied embedding, each on its own boundary."""
    return sum(_aligned(tensor.nbytes) for tensor in fixed.values())


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
