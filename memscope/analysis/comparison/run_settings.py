"""Settings and environment of two recordings, side by side.

They are the facts that a run begins with. Results are compared by metrics.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memscope.analysis.summary.summary import Summary
from memscope.analysis.timeline.facts import read_versions
from memscope.facts import FIRST_DEVICE, DeviceFact, Fact, RunKind, is_own_fact
from memscope.format.header import Header

Plain = str | int | float | None

MOST_VARIABLES = 40
# Listed even if neither recording has them.
ALWAYS = ("model", "device", "torch", "driver", "PYTORCH_CUDA_ALLOC_CONF")

# Setting, the fact that holds it, and the field of it; None for a fact that is no table.
_FIELDS: tuple[tuple[str, str, str | None], ...] = (
    ("policy", Fact.POLICY, "policy"),
    ("keep", Fact.POLICY, "keep"),
    ("allocator", Fact.POLICY, "allocator"),
    ("unit", Fact.POLICY, "unit"),
    ("prefetch", Fact.POLICY, "prefetch"),
    ("preload", Fact.POLICY, "preload"),
    ("host_keep", Fact.POLICY, "host_keep"),
    ("host_tier", Fact.HOST, "tier"),
    ("kv_bytes", Fact.PLAN, "kv_bytes"),
    ("headroom_bytes", Fact.PLAN, "headroom_bytes"),
    ("kv_blocks", Fact.KV, "blocks"),
    ("kv_block_tokens", Fact.KV, "block_tokens"),
    ("model", Fact.MODEL, "name"),
    ("layers", Fact.MODEL, "layers"),
    ("weights_bytes", Fact.MODEL, "weights_bytes"),
    ("PYTORCH_CUDA_ALLOC_CONF", Fact.ALLOCATOR, "settings"),
    ("torch_backend", Fact.ALLOCATOR, "backend"),
    ("product", Fact.PRODUCT, "name"),
    ("threads", Fact.PRODUCT, "threads"),
    ("container_limit_bytes", Fact.CGROUP, "limit_bytes"),
    ("address_space_limit_bytes", Fact.HOST_LIMITS, "address_space_bytes"),
    ("test", Fact.TEST, "id"),
    ("kind", Fact.RUN_KIND, None),
    ("warmup_steps", Fact.WARMUP_STEPS, None),
    ("step_source", Fact.STEP_SOURCE, None),
)
_DEVICE_FIELDS = {
    "device": "name",
    "device_bytes": "total_bytes",
    "device_limit_bytes": "limit_bytes",
    "device_uuid": "uuid",
}
# Of memscope's own runs: where what they print and record goes.
_OUTPUT = re.compile(r"-o|--output|--force|--json|--output=.*|-o.+", re.S)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting before and after. None: it is not set, or not recorded."""

    name: str
    before: Plain
    after: Plain
    is_in_first: bool
    is_in_second: bool

    @property
    def differs(self) -> bool | None:
        """Whether it differs; None if one of the recordings does not have it."""
        return self.before != self.after if self.is_in_first and self.is_in_second else None

    @property
    def reason(self) -> str | None:
        """Why it is not known whether it differs; None if it is known."""
        if self.differs is not None:
            return None
        if self.is_in_first or self.is_in_second:
            return f"the {'second' if self.is_in_first else 'first'} recording does not have it"
        return "neither recording has it"

    def to_json(self) -> dict[str, Any]:
        """As ``diff --json`` prints it."""
        return {
            "before": self.before,
            "after": self.after,
            "differs": self.differs,
            "reason": self.reason,
        }


def compare_settings(before: Summary, after: Summary) -> tuple[Setting, ...]:
    """All settings of either recording, and those in ``ALWAYS``."""
    old, new = (dict(_settings(each.header, each.facts)) for each in (before, after))
    variables = [_environment(each.facts) for each in (before, after)]
    for settings, known in zip((old, new), variables, strict=True):
        if known is not None:  # what is not among them is not set
            for name in ("PYTORCH_CUDA_ALLOC_CONF", *itertools.chain(*filter(None, variables))):
                settings.setdefault(name, None)
    names = dict.fromkeys([*ALWAYS, *new, *old])
    return tuple(
        Setting(name, old.get(name), new.get(name), name in old, name in new) for name in names
    )


def _settings(header: Header, facts: Mapping[str, Any]) -> Iterator[tuple[str, Plain]]:
    """Name and value of each setting that is recorded."""
    yield "command", shlex.join(_command(header, facts))
    variables = _environment(facts) or {}
    for name in variables:
        yield from _known(name, variables, name)
    for name, key, field in _FIELDS:
        if field is None:
            yield from _known(name, facts, key)
        else:
            yield from _known(name, facts.get(key), field)
    yield from _devices(facts)
    versions = read_versions(facts)
    for name in versions:
        yield from _known(name, versions, name)
    yield "host", header.host
    if header.rank is not None:
        yield "rank", header.rank
    for key in sorted(facts):
        if not is_own_fact(key):
            yield from _known(f"fact {key}", facts, key)


def _environment(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """The recorded environment variables that were set; None if none are recorded."""
    found = facts.get(Fact.ENVIRONMENT)
    return dict(list(found.items())[:MOST_VARIABLES]) if isinstance(found, dict) else None


def _devices(facts: Mapping[str, Any]) -> Iterator[tuple[str, Plain]]:
    """The first device, as the program named it or torch used it, and how many torch used."""
    used = sorted(DeviceFact.CUDA.devices(facts))
    keys = (FIRST_DEVICE, *map(DeviceFact.CUDA.of, used))
    first = next((key for key in keys if key in facts), "")
    for name, field in _DEVICE_FIELDS.items():
        yield from _known(name, facts.get(first), field)
    if used:
        yield "devices", len(used)


def _command(header: Header, facts: Mapping[str, Any]) -> Iterator[str]:
    """The command of the program; for `decode` without its output options."""
    is_ours = facts.get(Fact.RUN_KIND) == RunKind.DECODE and header.command[1:2] == ("decode",)
    words = iter(header.command[1:] if is_ours else header.command)
    for word in words:
        if not is_ours or not _OUTPUT.fullmatch(word):
            yield word
        elif word in ("-o", "--output"):
            next(words, None)


def _known(name: str, table: object, key: str) -> Iterator[tuple[str, Plain]]:
    """The value of ``key`` in ``table``, if ``table`` is a dict that has it."""
    if isinstance(table, dict) and key in table:
        with contextlib.suppress(RecursionError):  # nested as deeply as a file can be read
            yield name, _plain(table[key])


def _plain(value: object) -> Plain:
    """A value to compare and print: a text, a number, or None if it is not set."""
    if value == "" or value is None:
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, str | int) else json.dumps(value, sort_keys=True)
