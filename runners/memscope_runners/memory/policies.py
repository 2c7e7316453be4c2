"""Which layers the window keeps: pure rules, asked at each layer boundary."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from memscope.errors import MemscopeError
from memscope.plan import POLICIES


class WindowPolicy(Protocol):
    """The rules of one window over `layers` layers, of which it keeps `keep`.

    `resident` holds the layers on the device in the order of their upload, the one in flight
    among them; lm_head is no layer and is never evicted.
    """

    name: str
    layers: int
    keep: int

    def evicted(self, layer: int, resident: Collection[int]) -> Sequence[int]:
        """The resident layers that go before `layer` is there, as it is entered."""

    def ahead(self, layer: int, resident: Collection[int], unused: Collection[int]) -> int | None:
        """The layer to upload while `layer` computes; None where none is wanted.

        `unused`: those resident layers that were not entered since their upload.
        """

    def evicted_ahead(self, following: int, resident: Collection[int]) -> Sequence[int]:
        """The resident layers that go before `following` is uploaded ahead."""

    def preloaded(self) -> Sequence[int]:
        """The layers that may be there before the first step without being evicted unused."""


class Sweep:
    """What the windows share that only look one layer ahead; from the last, into the next step."""

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
    """Everything stays."""

    name = "off"

    def evicted(self, layer: int, resident: Collection[int]) -> Sequence[int]:
        return ()


class Past(Sweep):
    """Evicts every layer below layer − keep + 1; what is still to come in this sweep stays."""

    name = "past"

    def evicted(self, layer: int, resident: Collection[int]) -> Sequence[int]:
        lowest = layer - self.keep + 1
        return [other for other in resident if other < lowest]


class Symmetric(Sweep):
    """Also evicts what lies beyond the next layer, so that each sweep uploads everything."""

    name = "symmetric"

    def evicted(self, layer: int, resident: Collection[int]) -> Sequence[int]:
        lowest = layer - self.keep + 1
        return [other for other in resident if other < lowest or other > layer + 1]

    def preloaded(self) -> Sequence[int]:
        return range(min(self.keep, 2))


class Lru(Sweep):
    """Keeps the last `keep` used: in a sweep the order of use is that of upload."""

    name = "lru"

    def evicted(self, layer: int, resident: Collection[int]) -> Sequence[int]:
        others = [other for other in resident if other != layer]
        return others[: max(len(others) - self.keep + 1, 0)]


class Pinned:
    """keep − r layers stay for good, evenly spaced; the rest streams through a ring of r slabs.

    r = min(2, keep). With one slab there is nowhere to upload ahead.
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
        """Each slab of the ring is filled anew as soon as its layer has run."""
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
    """The policy of that name; "off" takes no `keep`. Raises MemscopeError."""
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
