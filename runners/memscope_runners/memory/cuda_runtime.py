"""The CUDA calls that CudaDevice needs: driver calls by cuda-bindings, streams by torch."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Protocol

import torch

from memscope.errors import MemscopeError, OutOfMemory
from memscope.probes.torch.allocator import read_counters

OUT_OF_MEMORY = "cudaErrorMemoryAllocation"
USE_HOST = "or use --device host."


class CudaFailed(Exception):
    """A failed call of the CUDA runtime. `error`: CUDA's name for the error."""

    def __init__(self, call: str, error: str) -> None:
        super().__init__(f"{call}: {error}")
        self.call = call
        self.error = error

    @property
    def is_out_of_memory(self) -> bool:
        return self.error == OUT_OF_MEMORY


class Event(Protocol):
    """torch.cuda.Event."""

    def record(self, stream: Any) -> None: ...
    def query(self) -> bool: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, end: Any) -> float: ...


class Stream(Protocol):
    """torch.cuda.Stream."""

    def wait_event(self, event: Any) -> None: ...
    def synchronize(self) -> None: ...


class Runtime(Protocol):
    """One GPU, as CudaDevice uses it. Addresses are of its memory; calls raise CudaFailed."""

    name: str
    torch_device: torch.device
    total_bytes: int

    def malloc(self, bytes: int) -> int: ...
    def free(self, address: int) -> None: ...
    def malloc_async(self, bytes: int, stream: Stream) -> int: ...
    def free_async(self, address: int, stream: Stream) -> None: ...
    def trim_async(self) -> None: ...
    def empty(self, bytes: int, stream: Stream) -> torch.Tensor: ...
    def view(self, address: int, bytes: int) -> torch.Tensor: ...
    def copy(self, target: int, source: int, bytes: int, stream: Stream) -> None: ...
    def fill(self, address: int, byte: int, bytes: int, stream: Stream) -> None: ...
    def register(self, address: int, bytes: int) -> None: ...
    def unregister(self, address: int) -> None: ...
    def free_bytes(self) -> int: ...
    def counters(self) -> dict[str, int]: ...
    def empty_cache(self) -> None: ...
    def new_stream(self) -> Stream: ...
    def compute_stream(self) -> Stream: ...
    def new_event(self, *, is_timed: bool) -> Event: ...
    def is_capturing(self) -> bool: ...


class CudaRuntime:
    """The GPU of that name ("cuda", "cuda:1"), made torch's current one.

    Raises MemscopeError where it is not there, or where cuda-bindings are not those of torch, and
    OutOfMemory where it is too full for CUDA itself.
    """

    def __init__(self, name: str = "cuda") -> None:
        self._index = find_index(name)
        self._runtime, self._driver = load_bindings()
        self.torch_device = torch.device("cuda", self._index)
        with _starting(name):
            torch.cuda.set_device(self.torch_device)
            torch.cuda.synchronize(self.torch_device)  # makes the context that both libraries share
        self._call("cudaSetDevice", self._index)
        self.name = f"{torch.cuda.get_device_name(self._index)} (cuda:{self._index})"
        self.total_bytes = int(torch.cuda.get_device_properties(self._index).total_memory)
        self._to_device = self._runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._copy = self._runtime.cudaMemcpyAsync
        self._pool: Any = None

    def malloc(self, bytes: int) -> int:
        return int(self._call("cudaMalloc", bytes))

    def free(self, address: int) -> None:
        self._call("cudaFree", address)

    def malloc_async(self, bytes: int, stream: Any) -> int:
        """Allocate from the device's default pool, which keeps freed memory until it is trimmed."""
        if self._pool is None:
            self._pool = self._call("cudaDeviceGetDefaultMemPool", self._index)
            self._keep_freed(2**64 - 1)
        return int(self._call("cudaMallocAsync", bytes, stream.cuda_stream))

    def free_async(self, address: int, stream: Any) -> None:
        self._call("cudaFreeAsync", address, stream.cuda_stream)

    def trim_async(self) -> None:
        """Release what the default pool keeps, and set its release threshold to 0."""
        if self._pool is not None:
            torch.cuda.synchronize(self.torch_device)
            self._keep_freed(0)
            self._call("cudaMemPoolTrimTo", self._pool, 0)
            self._pool = None

    def empty(self, bytes: int, stream: Any) -> torch.Tensor:
        """From torch's caching allocator, as a block of `stream`. Raises torch.OutOfMemoryError."""
        with torch.cuda.stream(stream):
            return torch.empty(bytes, dtype=torch.uint8, device=self.torch_device)

    def view(self, address: int, bytes: int) -> torch.Tensor:
        """uint8 (bytes,) over raw memory, which must outlive it."""
        tensor = torch.as_tensor(RawMemory(address, bytes), device=self.torch_device)
        assert tensor.data_ptr() == address, "torch copied raw memory instead of viewing it"
        return tensor

    def copy(self, target: int, source: int, bytes: int, stream: Any) -> None:
        """Host to device."""
        error = self._copy(target, source, bytes, self._to_device, stream.cuda_stream)[0]
        if error:
            raise self._failed("cudaMemcpyAsync", error)

    def fill(self, address: int, byte: int, bytes: int, stream: Any) -> None:
        self._call("cudaMemsetAsync", address, byte, bytes, stream.cuda_stream)

    def register(self, address: int, bytes: int) -> None:
        """Page-lock host memory in place. Any thread may call it."""
        self._call("cudaSetDevice", self._index)
        self._call("cudaHostRegister", address, bytes, self._runtime.cudaHostRegisterPortable)

    def unregister(self, address: int) -> None:
        self._call("cudaHostUnregister", address)

    def free_bytes(self) -> int:
        """Bytes that are free on the device, for any process."""
        return int(self._call("cudaMemGetInfo")[0])

    def counters(self) -> dict[str, int]:
        """Torch's allocator counters by name; see `memscope.probes.torch.allocator`."""
        return read_counters(torch, self._index)

    def empty_cache(self) -> None:
        torch.cuda.empty_cache()

    def new_stream(self) -> Any:
        stream: Any = torch.cuda.Stream
        with _starting(str(self.torch_device)):
            return stream(self.torch_device)

    def compute_stream(self) -> Any:
        return torch.cuda.current_stream(self.torch_device)

    def new_event(self, *, is_timed: bool) -> Any:
        event: Any = torch.cuda.Event
        return event(enable_timing=is_timed)

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def _keep_freed(self, threshold_bytes: int) -> None:
        attribute = self._runtime.cudaMemPoolAttr.cudaMemPoolAttrReleaseThreshold
        value = self._driver.cuuint64_t(threshold_bytes)
        self._call("cudaMemPoolSetAttribute", self._pool, attribute, value)

    def _call(self, name: str, *arguments: Any) -> Any:
        """The call's result: nothing, one value, or a tuple of several."""
        error, *results = getattr(self._runtime, name)(*arguments)
        if error:
            raise self._failed(name, error)
        return results[0] if len(results) == 1 else results

    def _failed(self, call: str, error: Any) -> CudaFailed:
        self._runtime.cudaGetLastError()  # so that nobody finds it later and takes it for theirs
        return CudaFailed(call, getattr(error, "name", str(error)))


class RawMemory:
    """Device memory for `torch.as_tensor`, which holds this object for as long as the tensor lives.

    The CUDA array interface, version 3 (Numba's documentation).
    """

    def __init__(self, address: int, bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


def find_index(name: str) -> int:
    """The device's index. Raises MemscopeError if there is no such device."""
    kind, _, number = name.partition(":")
    if kind != "cuda" or not (number.isdecimal() or (number == "" and ":" not in name)):
        raise MemscopeError(f"There is no device {name!r}.", "Use cuda, cuda:1 or host.")
    if torch.version.cuda is None:
        raise MemscopeError(
            f"torch {torch.__version__} was built without CUDA.",
            f"Install a CUDA build of torch, {USE_HOST}",
        )
    if not torch.cuda.is_available():
        raise MemscopeError(
            "There is no GPU here that torch can use.",
            f"Check that nvidia-smi lists one and that its driver is new enough, {USE_HOST}",
        )
    count = torch.cuda.device_count()
    index = int(number or 0)
    if index >= count:
        names = ", ".join(f"cuda:{number}" for number in range(count))
        raise MemscopeError(f"There is no device {name!r}.", f"Use one of {names}, {USE_HOST}")
    return index


@contextlib.contextmanager
def _starting(name: str) -> Iterator[None]:
    """Start CUDA on the device: create its context and streams."""
    try:
        yield
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        raise OutOfMemory(
            f"{name} is so full that CUDA itself finds no room to start there.",
            "nvidia-smi or memscope live lists who holds it: end one of them, or use another GPU.",
        ) from error


def load_bindings() -> tuple[ModuleType, ModuleType]:
    """cuda-bindings' runtime and driver, of torch's CUDA major; MemscopeError without them."""
    major = (torch.version.cuda or "13").partition(".")[0]
    advice = f"pip install 'memscope-torch[cuda{major}]', {USE_HOST}"
    try:
        bindings = importlib.import_module("cuda.bindings")
        runtime = importlib.import_module("cuda.bindings.runtime")
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError:
        raise MemscopeError("The GPU needs cuda-bindings, which are not here.", advice) from None
    version = str(getattr(bindings, "__version__", ""))
    if version.partition(".")[0] != major:
        raise MemscopeError(
            f"cuda-bindings {version} do not go with torch's CUDA {torch.version.cuda}.", advice
        )
    return runtime, driver
