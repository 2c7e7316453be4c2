"""Facts: what a recording says once about its run. Their keys are named here and nowhere else.

A fact is an event of kind ``fact``. Its key stands in the column ``name``, its value in ``data``.
The last value of a key counts. ``memscope.analysis.timeline.facts`` reads the values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum


class Fact(StrEnum):
    """Key of a fact, as it stands in the file. Never change one: old recordings hold them."""

    RUN_KIND = "run.kind"  # which program recorded: a RunKind
    WARMUP_STEPS = "run.warmup_steps"  # number of steps that are warm-up
    STEP_SOURCE = "run.step_source"  # what begins and ends steps: a StepSource
    EXIT_CODE = "exit_code"  # exit code of our runner
    TEST = "test"  # id of the pytest test, number of its runs
    ENVIRONMENT = "environment"  # environment variables that change how memory is used

    VERSIONS = "versions"  # name → version, as the program says
    TORCH_VERSION = "torch.version"  # versions of torch and CUDA
    NVML_DRIVER = "nvml.driver"  # version of the NVIDIA driver

    MODEL = "model"  # name, number of layers, sizes of the weights
    POLICY = "policy"  # the runner's settings: policy, keep, allocator, prefetch …
    PLAN = "plan"  # what the runner had worked out before the first step
    PRODUCT = "product"  # the runner's matrix product: name, threads
    HOST = "host"  # where the runner keeps weights on the host
    LINK = "link"  # upload rate from pinned memory, measured at one copy size
    KV = "kv"  # number of KV blocks, tokens in each

    WATCH = "watch"  # what memscope.watch reads: layers, peaks, compiled or not
    WATCH_PACE = "watch.pace"  # how often it reads layers, and what that costs
    ALLOCATOR = "torch.allocator"  # settings and backend of torch's allocator
    MAP = "torch.map"  # the allocator's last map: device, counts, or why there is none
    PRIVATE_POOLS = "torch.private_pools"  # why private pools are not read

    NVML = "nvml"  # readings that NVML does not give, and why
    CUPTI = "cupti"  # what CUPTI records, or why it does not
    CUPTI_COST = "cupti.cost"  # records read, time taken, buffers refused
    CGROUP = "cgroup"  # version and memory limit of the container
    CGROUP_EVENTS = "cgroup.events"  # the kernel's out-of-memory counts of the container
    HOST_LIMITS = "host.limits"  # limits on this process, such as its address space

    SEGMENT = "recorder.segment"  # first in every segment but the first: what came before it
    REMOVED = "recorder.removed"  # what --keep-last has deleted
    REFUSED = "recorder.refused"  # events that could not be written, and why
    STOPPED = "recorder.stopped"  # why the recorder stopped before the program


class DeviceFact(StrEnum):
    """Key of a fact that each GPU has, without the number of the GPU."""

    DEVICE = "device"  # the device as the runner sees it: name, kind, total and limit
    CUDA = "cuda"  # the GPU as torch sees it: name, total, UUID
    CONTEXT = "context"  # bytes of the CUDA context, or why they are not known
    OTHER_PROCESSES = "nvml.others"  # process id → command and bytes
    OUTSIDE_TORCH = "cupti.outside"  # what libraries took by themselves, as CUPTI saw it

    def of(self, device: int) -> str:
        """The key for one GPU."""
        return f"{self}.{device}"

    def devices(self, keys: Iterable[str]) -> dict[int, str]:
        """GPU → its key, of those among ``keys`` that are keys of this fact."""
        pattern = re.compile(rf"{re.escape(self)}\.(\d{{1,4}})")
        return {int(match[1]): key for key in keys if (match := pattern.fullmatch(key))}


class RunKind(StrEnum):
    """Values of ``Fact.RUN_KIND``."""

    DECODE = "q8-decode"
    PROGRAM = "program"


class StepSource(StrEnum):
    """Values of ``Fact.STEP_SOURCE``: what begins and ends steps."""

    MARKED = "program"  # the program marks its steps
    WATCH = "watch"  # memscope.watch: forwards of the watched model, or its optimizer's steps
    OPTIMIZER = "optimizer"  # a call of an optimizer's step
    FORWARD = "module"  # the outermost forward of a module
    SECOND = "second"  # no sign of steps: each second is one


PROBE_PREFIX = "probe."


def probe_fact(name: str) -> str:
    """Key of what a probe says about itself: what it watches, or why it is absent or stopped."""
    return f"{PROBE_PREFIX}{name}"


FIRST_DEVICE = DeviceFact.DEVICE.of(0)

_OWN_FAMILIES = tuple(f"{name}." for name in ("probe", "recorder", "cupti", "nvml"))
_OWN_KEYS = frozenset(Fact)


def is_own_fact(key: str) -> bool:
    """Whether memscope records facts of this key, and not the program itself."""
    if key in _OWN_KEYS or key.startswith(_OWN_FAMILIES):
        return True
    return any(fact.devices((key,)) for fact in DeviceFact)
