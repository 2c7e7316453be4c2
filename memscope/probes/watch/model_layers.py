"""The layers of a model, their devices, and how to follow calls of a module."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from memscope.errors import MemscopeError

DEFAULT_LAYERS = "model.layers"

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer. ``device``: its CUDA index, -1 on the host.

    ``module`` is a weak reference, so deleting the model frees its memory.
    """

    number: int
    name: str
    module: weakref.ref[Any]
    device: int


def find_layers(model: Any, path: str) -> tuple[Layer, ...]:
    """The modules of the list at ``path``, in order. Looks inside wrappers too.

    The default falls back to the longest list of modules. Raises MemscopeError if there is none.
    """
    lists = {name: module for name, module in model.named_modules() if _is_list(module)}
    named = [name for name in lists if name == path or name.endswith(f".{path}")]
    if not named and path == DEFAULT_LAYERS and lists:
        named = [max(lists, key=lambda name: len(lists[name]))]
    if not named:
        known = ", ".join(sorted(lists)[:8])
        raise MemscopeError(
            f"{type(model).__name__} has no list of layers at {path!r}.",
            f"Name one of its lists, like layers={next(iter(lists))!r} (there are {known})."
            if lists
            else "It has no list of modules: pass layers=None, and steps alone are followed.",
        )
    found = min(named, key=len)
    return tuple(
        Layer(number, f"{found}.{key}", weakref.ref(module), find_device(module))
        for number, (key, module) in enumerate(lists[found].named_children())
    )


def find_device(module: Any) -> int:
    """CUDA index of the device that a module computes on; -1 for the host.

    accelerate keeps the weights of an offloaded module elsewhere and names the device in a hook.
    """
    device = getattr(getattr(module, "_hf_hook", None), "execution_device", None)
    if isinstance(device, int):
        return device
    if device is None or getattr(device, "type", None) == "meta":
        tensors = itertools.chain(module.parameters(), module.buffers())
        device = next((tensor.device for tensor in tensors if tensor.device.type != "meta"), None)
    if device is None or device.type != "cuda":
        return -1
    return int(device.index or 0)


def is_compiled_whole(model: Any) -> bool:
    """Whether torch.compile made one graph of the model, without boundaries of layers."""
    return hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None


def follow_calls(module: Any, before: Callable[[], None], after: Callable[[], None]) -> Undo:
    """Call ``before`` and ``after`` around each call of ``module``, even if it raises.

    A module compiled in place (``module.compile()``) would trace hooks into its graph, so the
    function that it calls instead is wrapped.
    """
    if getattr(module, "_compiled_call_impl", None) is not None:
        return _wrap_compiled(module, before, after)
    handles = (
        module.register_forward_pre_hook(lambda *_: before()),
        module.register_forward_hook(lambda *_: after(), always_call=True),
    )

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


def _wrap_compiled(module: Any, before: Callable[[], None], after: Callable[[], None]) -> Undo:
    original, reference = module._compiled_call_impl, weakref.ref(module)

    def call(*args: Any, **kwargs: Any) -> Any:
        before()
        try:
            return original(*args, **kwargs)
        finally:
            after()

    module._compiled_call_impl = call

    def undo() -> None:
        module = reference()
        if module is not None and module._compiled_call_impl is call:
            module._compiled_call_impl = original

    return undo


def device_changes(layers: tuple[Layer, ...]) -> Iterator[Layer]:
    """The first layer, and each layer on another device than the one before."""
    previous = None
    for layer in layers:
        if layer.device != previous:
            yield layer
        previous = layer.device


def _is_list(module: Any) -> bool:
    return type(module).__name__ in ("ModuleList", "Sequential") and len(module) > 0
