"""Residency policies: pure rules that say which layers the window keeps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from memscope.errors import MemscopeError
from memscope.plan import POLICIES


class WindowPolicy(Protocol):
    """The rules of one window that keeps `keep` of `layers` layers.

    `resident`: the layers on the device in the order of their upload, the one in flight
    included. lm_head is not a layer and is never evicted.
    """

    name: str
    layers: int
    keep: int

    def evicted(self, layer: int, resident: Collection[int]) -> Sequence[int]:
        """The resident layers to evict before `layer` is uploaded."""

    def ahead(self, layer: int, resident: Collection[int], unused: Collection[int]) -> int | None:
        """The layer to upload while `layer` computes, or None.

        `unused`: resident layers that have not run since their upload.
        """

    def evicted_ahead(self, following: int, resident: Collection[int]) -> Sequence[int]:
        """The resident layers to evict before `following` is uploaded ahead."""

    def preloaded(self) -> Sequence[int]:
        """The layers to upload before the first step: those that would not be evicted unused."""


class Sweep:
    """Base of the policies that upload one layer ahead; after the last layer comes layer 0."""

    def __init__(self, layers: int, keep: int) -> None:
        self.layers = layers
        self.keep = keep

    def ahead(self, layer: int, resident: Collection[int], unused: Collection[int]) -> int | None:
        following = (layer + 1) % self.layers
        return None if following in resident else following

    def evicted_ahead(self, following: int, resident: Collection[int]) -> Sequence[int]:
        return ()

    def preloaded(self) -> Sequence[int]:
        return range(self.keep)


class Off(Sweep):
    """Keeps every layer."""

    name = "off"

    def evicted(self, layer: int, resident: Collection[int]) -> Sequence[int]:
        return ()


class Past(Sweep):
    """Evicts layers below `layer − keep + 1`; layers still to come in this step stay."""

    name = "past"

    def evicted(self, layer: int, resident: Collection[int]) -> Sequence[int]:
        lowest = layer - self.keep + 1
        return [other for other in resident if other < lowest]


class Symmetric(Sweep):
    """Also evicts layers beyond the next one, so each step uploads every layer."""

    name = "symmetric"

    def evicted(self, layer: int, resident: Collection[int]) -> Sequence[int]:
        lowest = layer - self.keep + 1
        return [other for other in resident if other < lowest or other > layer + 1]

    def preloaded(self) -> Sequence[int]:
        return range(min(self.keep, 2))


class Lru(Sweep):
    """Keeps the `keep` most recently used layers."""

    name = "lru"

    def evicted(self, layer: int, resident: Collection[int]) -> Sequence[int]:
        others = [other for other in resident if other != layer]
        return others[: max(len(others) - self.keep + 1, 0)]


class Pinned:
    """Keeps keep − r layers for good, evenly spaced; the others stream through a ring of r slabs.

    r = min(2, keep). With one slab there is no room to upload ahead.
    """

    name = "pinned"

    def __init__(self, layers: int, keep: int) -> None:
        self.layers = layers
        self.keep = keep
        self.ring = min(2, keep)
        fixed = keep - self.ring
        # A balanced word: `fixed` of `layers`, and the streamed ones are spaced evenly as well.
        self.fixed = frozenset(
            layer
            for layer in range(layers)
            if (layer + 1) * fixed // layers > layer * fixed // layers
        )
        self.streamed = tuple(layer for layer in range(layers) if layer not in self.fixed)

    def evicted(self, layer: int, resident: Collection[int]) -> Sequence[int]:
        if layer in self.fixed or layer in resident:
            return ()
        ring = [other for other in resident if other not in self.fixed]
        return ring[: max(len(ring) - self.ring + 1, 0)]

    def ahead(self, layer: int, resident: Collection[int], unused: Collection[int]) -> int | None:
        """Fill each slab of the ring again as soon as its layer has run."""
        if self.ring == 1:
            return None
        ring = [other for other in resident if other not in self.fixed]
        if len(ring) == self.ring and (ring[0] == layer or ring[0] in unused):
            return None
        after = ring[-1] if ring else layer
        following = next((other for other in self.streamed if other > after), self.streamed[0])
        return None if following in resident else following

    def evicted_ahead(self, following: int, resident: Collection[int]) -> Sequence[int]:
        return self.evicted(following, resident)

    def preloaded(self) -> Sequence[int]:
        return sorted(self.fixed.union(self.streamed[: self.ring]))


WINDOWS: dict[str, Callable[[int, int], WindowPolicy]] = {
    "past": Past,
    "symmetric": Symmetric,
    "lru": Lru,
    "pinned": Pinned,
}


def make_policy(name: str, layers: int, keep: int | None = None) -> WindowPolicy:
    """Make the policy `name`; "off" takes no `keep`. Raises MemscopeError."""
    if name not in POLICIES:
        raise MemscopeError(f"There is no policy {name!r}.", f"Use one of {', '.join(POLICIES)}.")
    if name == "off":
        if keep is not None:
            raise MemscopeError(
                "Policy off keeps every layer.", "Leave out --keep, or use --policy past."
            )
        return Off(layers, layers)
    if keep is None:
        raise MemscopeError(f"Policy {name} needs a window.", f"Give --keep 1 to {layers}.")
    if not 1 <= keep <= layers:
        raise MemscopeError(
            f"A window of {keep} layers does not fit a model of {layers}.",
            f"Give --keep 1 to {layers}.",
        )
    return WINDOWS[name](layers, keep)
