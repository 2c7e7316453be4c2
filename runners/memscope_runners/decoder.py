"""The decoder: a model on a device, run one step at a time."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING

import torch

from memscope.errors import OutOfMemory
from memscope.events import Kind
from memscope.facts import Fact
from memscope.plan import Needs, Plan, Window, advice
from memscope.recorder.memory_errors import find_problem, recorded_by_caller
from memscope_runners.memory.allocators import Allocator, check_allocator, make_allocator
from memscope_runners.memory.choice import kind_of, make_device
from memscope_runners.memory.cuda_device import CudaDevice
from memscope_runners.memory.device import Buffer, Device, DeviceOutOfMemory
from memscope_runners.memory.driver import Driver
from memscope_runners.memory.host_slabs import HostSlabs, open_host_slabs
from memscope_runners.memory.parts import Part, planned_buffers, split_layout
from memscope_runners.memory.policies import make_policy
from memscope_runners.memory.residency import Residency
from memscope_runners.memory.static_pool import Planned
from memscope_runners.progress import Progress, unseen
from memscope_runners.q8.config import ModelConfig
from memscope_runners.q8.host_ops import HostOps
from memscope_runners.q8.kv_cache import KvCache
from memscope_runners.q8.model import Model, greedy
from memscope_runners.q8.ops import Ops
from memscope_runners.q8.slab import SlabLayout
from memscope_runners.q8.weights import CheckpointSource
from memscope_runners.run_facts import record_facts
from memscope_runners.settings import Settings

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder

ALIGNMENT = 256
LINK_SLABS = 16
CUDA_HEADROOM_BYTES = 64 << 20  # activations and libraries' workspaces, in torch's allocator


@dataclass(frozen=True, slots=True)
class Step:
    """One step's token, its float32 logits (vocab,) on the device, and its duration."""

    token: int
    logits: torch.Tensor
    duration_ns: int

    @property
    def logits_crc(self) -> int:
        """The CRC-32 of the logits' bytes."""
        return zlib.crc32(self.logits.cpu().numpy().tobytes())


@dataclass(slots=True)
class Decoded:
    """The result: new token ids, and the CRC-32 of each step's float32 logits."""

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
    """A checkpoint whose unquantized (fixed) part is on the device."""

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
        progress: Progress = unseen,
        host: HostSlabs | None = None,
    ) -> None:
        """Raises MemscopeError for impossible settings, OutOfMemory if the model does not fit.

        `host`: slabs on the host that several decoders share; they stay open.
        """
        config = checkpoint.config
        policy = make_policy(settings.policy, config.layers, settings.keep)
        check_allocator(settings.allocator, kind_of(settings.device))
        self._checkpoint, self._settings, self._recorder = checkpoint, settings, recorder
        limit, is_timing = settings.device_limit_bytes, recorder is not None
        self.device = make_device(settings.device, limit, is_timing=is_timing)
        self.plan = plan_decode(checkpoint, settings, self.device, tokens)
        self._buffers: list[tuple[Driver, Buffer]] = []
        self._allocator: Allocator | None = None
        self._host: HostSlabs | None = None  # of this decoder alone
        self._residency: Residency | None = None
        if recorder is not None:
            record_facts(recorder, checkpoint, settings, self.device, self.plan)
        try:
            ops = make_ops(config, self.device)
            fixed, slabs, allocator = self._acquire(tokens, host, progress)
        except BaseException:
            self.close()
            raise
        self._residency = Residency(
            PlacedSource(checkpoint.layer_layout, checkpoint.head_layout, fixed, slabs.slab),
            self.device,
            allocator,
            policy,
            unit=settings.unit,
            prefetch=settings.prefetch,
            poison=settings.poison,
            recorder=recorder,
        )
        self._model = Model(config, fixed, self._residency, ops)

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
        with contextlib.ExitStack() as stack:  # the last first, and each whatever the others raise
            stack.callback(self.device.close)
            if self._host is not None:
                stack.callback(self._host.close)
            for driver, buffer in reversed(self._buffers):
                stack.callback(driver.free, buffer)
            self._buffers.clear()
            if self._residency is not None:
                stack.callback(self._residency.close)
            elif self._allocator is not None:
                stack.callback(self._allocator.close)

    def run_step(self, step: int, inputs: Sequence[int]) -> Step:
        """Run all layers once on `inputs`. Raises OutOfMemory."""
        started_ns = perf_counter_ns()
        with self._reporting_oom(step):
            self.residency.begin_step(step)
            logits = self._model.forward(inputs, self._kv)
            self.residency.emit_uploads()
            token = greedy(logits)  # waits for the device
            self.residency.end_step()
        duration_ns = perf_counter_ns() - started_ns
        if self._recorder is not None:
            self._recorder.sample("kv.used_bytes", bytes=self._kv.used_bytes, step=step)
            self._recorder.emit(Kind.STEP, step, duration_ns=duration_ns)
        return Step(token, logits, duration_ns)

    def _acquire(
        self, tokens: int, host: HostSlabs | None, progress: Progress
    ) -> tuple[dict[str, torch.Tensor], HostSlabs, Allocator]:
        """Allocate on the device and on the host; `close` frees what was allocated."""
        checkpoint, settings, recorder = self._checkpoint, self._settings, self._recorder
        with self._reporting_oom(-1):
            memory = self._take("fixed", fixed_bytes(checkpoint.fixed))
            fixed = place_fixed(checkpoint.fixed, memory)
            kv = self._take("kv", self.plan.needs.kv_bytes)
            self._kv = KvCache(kv, checkpoint.config, tokens)
        if host is None:
            host = self._host = open_host_slabs(
                checkpoint,
                self.device,
                keep=settings.host_keep,
                is_streaming=settings.policy != "off",
                recorder=recorder,
                progress=progress,
            )
        if recorder is not None:
            recorder.fact(Fact.HOST, host.facts())
            self._record_link(recorder, host)
        with self._reporting_oom(-1):
            allocator = self._allocator = make_allocator(
                settings.allocator, self.device, recorder, self._planned_buffers()
            )
        return fixed, host, allocator

    def _take(self, owner: str, size: int) -> torch.Tensor:
        driver = Driver(self.device, owner, self._recorder)
        buffer = driver.malloc(size)
        self._buffers.append((driver, buffer))
        return self.device.tensor(buffer)

    def _record_link(self, recorder: Recorder, host: HostSlabs) -> None:
        """Measure the link with back-to-back copies of pinned slabs."""
        device, slab_bytes = self.device, self.plan.needs.slab_bytes
        parts = split_layout(self._checkpoint.layer_layout, self._settings.unit)
        if not isinstance(device, CudaDevice) or host.facts()["tier"] != "pinned":
            return
        with self._reporting_oom(-1):
            driver = Driver(device, "link", recorder)
            buffer = driver.malloc(slab_bytes)
        slabs = [host.slab(number % self.plan.needs.layers) for number in range(LINK_SLABS)]
        rate = device.measure_link(buffer, [part.source(slab) for slab in slabs for part in parts])
        driver.free(buffer)
        sizes = [part.bytes for part in parts]
        recorder.fact(Fact.LINK, {"copy_bytes": sizes, "pinned_bytes_per_s": round(rate)})

    def _planned_buffers(self) -> tuple[Planned, ...]:
        """The buffers that the `static` allocator makes: the window at its peak."""
        checkpoint = self._checkpoint
        parts = split_layout(checkpoint.layer_layout, self._settings.unit)
        head = Part.of_entry(checkpoint.head_layout.entry("lm_head"))
        return planned_buffers(parts, self.plan.peak_layers, head)

    @contextlib.contextmanager
    def _reporting_oom(self, step: int) -> Iterator[None]:
        try:
            with recorded_by_caller():
                yield
        except DeviceOutOfMemory as error:
            raise self._report_oom(error, step) from None
        except RuntimeError as error:  # of torch's allocator, of a library, of a kernel's loading
            problem = find_problem(error)
            if problem is None or problem.message.kind == "host":
                raise
            if not isinstance(self.device, CudaDevice):
                raise
            requested = problem.message.requested
            refused = self.device.refused(None if requested is None else requested.bytes)
            raise self._report_oom(refused, step) from None

    def _report_oom(self, error: DeviceOutOfMemory, step: int) -> OutOfMemory:
        if self._recorder is not None:
            self._recorder.emit(Kind.OOM, step, bytes=error.requested, data=error.metrics())
        message = f"Out of memory on {self.device.name}: {error}."
        return OutOfMemory(message, advice(self.plan))


def plan_decode(
    checkpoint: CheckpointSource, settings: Settings, device: Device, tokens: int
) -> Plan:
    needs = Needs(
        layers=checkpoint.config.layers,
        slab_bytes=checkpoint.layer_layout.bytes,
        head_bytes=checkpoint.head_layout.bytes,
        kv_bytes=KvCache.bytes_for(checkpoint.config, tokens),
        fixed_bytes=fixed_bytes(checkpoint.fixed),
        headroom_bytes=CUDA_HEADROOM_BYTES if device.kind == "cuda" else 0,
    )
    window = Window(settings.policy, settings.keep, settings.prefetch)
    return Plan(needs, window, device.limit_bytes)


def make_ops(config: ModelConfig, device: Device) -> Ops:
    """The operations of a layer for this device. GPU kernels are loaded for a GPU only.

    Raises MemscopeError if the device cannot compute this model.
    """
    if device.kind == "host":
        return HostOps(config)
    from memscope_runners.q8.cuda_ops import CudaOps

    return CudaOps(config)


def place_fixed(fixed: Mapping[str, torch.Tensor], memory: torch.Tensor) -> dict[str, torch.Tensor]:
    """`fixed` copied into `memory`, uint8 of `fixed_bytes`, as views of it."""
    placed, start = {}, 0
    for name, tensor in fixed.items():
        view = memory[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        placed[name] = view.copy_(tensor)
        start += _aligned(tensor.nbytes)
    return placed


def fixed_bytes(fixed: Mapping[str, torch.Tensor]) -> int:
    """Bytes of the norms and of an untied embedding, each aligned."""
    return sum(_aligned(tensor.nbytes) for tensor in fixed.values())


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
