"""Bytes of all live KV caches of transformers.

Allocated bytes grow with each token of ``generate``. This reading shows that it is no leak.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder


READING = "model.kv_bytes"


class KvCacheProbe:
    """Records ``model.kv_bytes`` per device. ``close`` restores the class's own init."""

    name = "kv_cache"

    def __init__(self) -> None:
        self._is_following = False
        self._devices: set[int] = set()

    def __call__(self, recorder: Recorder) -> None:
        self._is_following = self._is_following or follow_caches()
        if not self._is_following:
            return
        held = kv_bytes()
        self._devices |= held.keys()
        for device in self._devices:
            recorder.sample(READING, bytes=held.get(device, 0), device=device)

    def close(self) -> None:
        """Stop following caches."""
        if self._is_following:
            self._is_following = False
            unfollow_caches()


def follow_caches() -> bool:
    """Follow each new cache. Returns False until the program has imported transformers."""
    global _followers
    kind = getattr(sys.modules.get("transformers.cache_utils"), "Cache", None)
    if kind is None:
        return False
    _followers += 1
    if not hasattr(kind.__init__, "memscope_original"):
        kind.__init__ = _following_init(kind.__init__)
    return True


def unfollow_caches() -> None:
    """Undo one ``follow_caches``. The last one restores transformers' own function."""
    global _followers
    _followers -= 1
    kind = getattr(sys.modules.get("transformers.cache_utils"), "Cache", None)
    original = getattr(kind and kind.__init__, "memscope_original", None)
    if not _followers and kind is not None and original is not None:
        kind.__init__ = original


def kv_bytes() -> dict[int, int]:
    """Device index (-1 for the host) → bytes of keys and values of live caches."""
    held: dict[int, int] = {}
    for cache in tuple(_caches):
        for tensor in _tensors(cache):
            device = (tensor.device.index or 0) if tensor.device.type == "cuda" else -1
            held[device] = held.get(device, 0) + tensor.nbytes
    return held


_caches: weakref.WeakSet[Any] = weakref.WeakSet()
_followers = 0


def _following_init(original: Callable[..., None]) -> Callable[..., None]:
    def init(cache: Any, *args: Any, **kwargs: Any) -> None:
        original(cache, *args, **kwargs)
        with contextlib.suppress(TypeError):  # what cannot be referred to weakly is not counted
            _caches.add(cache)

    init.memscope_original = original  # type: ignore[attr-defined]
    return functools.wraps(original)(init)


def _tensors(cache: Any) -> Iterator[Any]:
    """Tensors of a cache with layers (transformers 4.54 and newer) or with two lists."""
    for layer in getattr(cache, "layers", None) or ():
        yield from _with_bytes(getattr(layer, "keys", None), getattr(layer, "values", None))
    for name in ("key_cache", "value_cache"):
        found = getattr(cache, name, None)
        yield from _with_bytes(*(found if isinstance(found, list) else ()))


def _with_bytes(*tensors: Any) -> Iterator[Any]:
    return (each for each in tensors if getattr(each, "nbytes", None) is not None)
