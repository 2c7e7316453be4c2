"""Work out what fits on a device before anything runs. Sizes are in bytes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from memscope.units import format_bytes

POLICIES = ("off", "past", "symmetric", "lru", "pinned")


@dataclass(frozen=True, slots=True)
class Needs:
    """Memory that a model needs: a slab for each layer on the device, and what is always there."""

    layers: int
    slab_bytes: int
    head_bytes: int
    kv_bytes: int = 0
    fixed_bytes: int = 0
    headroom_bytes: int = 0

    @property
    def always_bytes(self) -> int:
        return self.head_bytes + self.kv_bytes + self.fixed_bytes + self.headroom_bytes


@dataclass(frozen=True, slots=True)
class Window:
    """A residency policy, its keep (None for "off"), and whether the next layer is prefetched."""

    policy: str
    keep: int | None = None
    prefetch: bool = False

    @property
    def options(self) -> str:
        """The command-line options that set this window."""
        keep = "" if self.keep is None else f" --keep {self.keep}"
        return f"--policy {self.policy}{keep}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A window for a model on a device."""

    needs: Needs
    window: Window
    limit_bytes: int

    @property
    def peak_layers(self) -> int:
        return peak_layers(self.window, self.needs.layers)

    @property
    def weights_bytes(self) -> int:
        """Bytes of the slabs at the peak and of lm_head."""
        return self.peak_layers * self.needs.slab_bytes + self.needs.head_bytes

    @property
    def needed_bytes(self) -> int:
        return self.peak_layers * self.needs.slab_bytes + self.needs.always_bytes

    @property
    def is_fitting(self) -> bool:
        return self.needed_bytes <= self.limit_bytes

    def facts(self) -> dict[str, Any]:
        """The `plan` fact of a recording."""
        return {
            **asdict(self.needs),
            **asdict(self.window),
            "limit_bytes": self.limit_bytes,
            "peak_layers": self.peak_layers,
            "weights_bytes": self.weights_bytes,
            "needed_bytes": self.needed_bytes,
            "fits": self.is_fitting,
        }


def peak_layers(window: Window, layers: int) -> int:
    """The most slabs on the device at once, including the one in flight.

    `past` holds the end of one sweep and the start of the next, so 2 × keep. `pinned` uploads
    ahead within its ring.
    """
    if window.policy == "off" or window.keep is None:
        return layers
    if window.policy == "pinned":
        return window.keep
    held = 2 * window.keep if window.policy == "past" else window.keep
    return min(held + window.prefetch, layers)


def fitting_keep(plan: Plan) -> int | None:
    """The largest keep that fits under the plan's policy; None if none does, or for "off"."""
    if plan.window.policy == "off":
        return None
    keeps = range(plan.needs.layers, 0, -1)
    return next((keep for keep in keeps if with_keep(plan, keep).is_fitting), None)


def with_keep(plan: Plan, keep: int) -> Plan:
    """The same plan with another keep."""
    return replace(plan, window=replace(plan.window, keep=keep))


def with_policy(plan: Plan, policy: str) -> Plan:
    """The same plan with another policy and the smallest keep."""
    keep = None if policy == "off" else 1
    return replace(plan, window=replace(plan.window, policy=policy, keep=keep))


def advice(plan: Plan) -> str:
    """One sentence that says which window fits."""
    limit = format_bytes(plan.limit_bytes)
    if plan.is_fitting:
        needed = format_bytes(plan.needed_bytes)
        return f"{plan.window.options} fits in {limit} (needs {needed})."
    windowed = with_policy(plan, "past") if plan.window.policy == "off" else plan
    keep = fitting_keep(windowed)
    if keep is not None:
        needed = format_bytes(with_keep(windowed, keep).needed_bytes)
        policy = windowed.window.policy
        return f"keep ≤ {keep} fits under --policy {policy} in {limit} (needs {needed})."
    return _advice_where_no_keep_fits(windowed, limit)


def _advice_where_no_keep_fits(plan: Plan, limit: str) -> str:
    pinned = with_policy(plan, "pinned")
    keep = fitting_keep(pinned)
    if keep is not None:
        chosen = with_keep(pinned, keep)
        return (
            f"No keep fits under --policy {plan.window.policy} in {limit}; "
            f"{chosen.window.options} does (needs {format_bytes(chosen.needed_bytes)})."
        )
    return (
        f"No window fits in {limit}: the smallest, {pinned.window.options}, "
        f"needs {format_bytes(pinned.needed_bytes)}."
    )
