"""KV caches of transformers: bytes of every cache that is alive.

Allocated bytes grow with each token of a ``generate``; with this reading that is no leak.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import Any

from memscope.writer import Recorder

METRIC = "model.kv_bytes"


class KvCacheProbe:
    """Samples ``model.kv_bytes`` for each device; ``close`` gives the class its own init back."""

    name = "kv_cache"

    def __init__(self) -> None:
        self._caches: weakref.WeakSet[Any] = weakref.WeakSet()
        self._wrapped: tuple[type, Any, Any] | None = None
        self._devices: set[int] = set()

    def __call__(self, recorder: Recorder) -> None:
        if self._wrapped is None and not self._wrap():
            return
        held = kv_bytes(self._caches)
        self._devices |= held.keys()
        for device in self._devices:
            recorder.sample(METRIC, bytes=held.get(device, 0), device=device)

    def close(self) -> None:
        """Stop following caches."""
        if self._wrapped is not None:
            kind, original, ours = self._wrapped
            if kind.__dict__.get("__init__") is ours:
                kind.__init__ = original  # type: ignore[misc]

    def _wrap(self) -> bool:
        """Follow each cache from its birth on, once the program has imported transformers."""
        kind = getattr(sys.modules.get("transformers.cache_utils"), "Cache", None)
        if kind is None:
            return False
        original, caches = kind.__init__, self._caches

        def init(cache: Any, *args: Any, **kwargs: Any) -> None:
            original(cache, *args, **kwargs)
            try:
                caches.add(cache)
            except TypeError:  # a cache that cannot be referred to weakly is not counted
                return

        init.__wrapped__ = original  # type: ignore[attr-defined]
        kind.__init__ = init
        self._wrapped = kind, original, init
        return True


def kv_bytes(caches: weakref.WeakSet[Any]) -> dict[int, int]:
    """Device index (-1 for the host) → bytes of the keys and values in ``caches``."""
    held: dict[int, int] = {}
    for cache in tuple(caches):
        for tensor in _tensors(cache):
            device = tensor.device.index if tensor.device.type == "cuda" else -1
            held[device or 0] = held.get(device or 0, 0) + tensor.nbytes
    return held


def _tensors(cache: Any) -> Iterator[Any]:
    """Of a cache with layers (transformers 4.54 and newer) or with two lists of tensors."""
    layers = getattr(cache, "layers", None)
    if layers is not None:
        pairs = ((getattr(each, "keys", None), getattr(each, "values", None)) for each in layers)
    else:
        keys, values = getattr(cache, "key_cache", ()), getattr(cache, "value_cache", ())
        pairs = zip(keys, values, strict=False)
    for pair in pairs:
        yield from (each for each in pair if getattr(each, "nbytes", None) is not None)
