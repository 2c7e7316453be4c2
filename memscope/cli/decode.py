"""Continue a prompt with the int8 runner, and record its memory."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from memscope.cli.output_path import default_path
from memscope.cli.progress import ProgressBars
from memscope.cli.requirements import require
from memscope.errors import MemscopeError
from memscope.facts import Fact
from memscope.plan import POLICIES
from memscope.recorder.retention import DEFAULT_KEEP_LAST, KEEP_LAST_HELP, parse_keep_last
from memscope.text import clean
from memscope.units import parse_bytes

if TYPE_CHECKING:
    from memscope.recorder.recorder import Recorder
    from memscope_runners.decoder import Decoded
    from memscope_runners.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    add = parser.add_argument
    add("prompt", help="the text to continue; --chat puts it into the model's chat format")
    add(
        "--model",
        help="a name, a folder, a .gguf or .q8.safetensors file (default: SmolLM2-135M-Instruct)",
    )
    add("--keep", type=int, metavar="N", help="number of layers that stay on the device")
    add("--policy", help=f"{', '.join(POLICIES)} (default: off; with --keep: past)")
    add(
        "--allocator",
        default="pool",
        help="naive, pool or static; on a GPU also async or torch (default: pool)",
    )
    add("--unit", default="slab", help="what one upload carries: slab or entry (default: slab)")
    add(
        "--prefetch",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="upload layers before they are needed",
    )
    add(
        "--preload",
        action=argparse.BooleanOptionalAction,
        help="upload layers before the first step",
    )
    add("--device", default=None, help="cuda, cuda:1 or host (default: the best one available)")
    add(
        "--device-limit",
        metavar="SIZE",
        help="the memory to use on the device, like 96MiB, or 96M (1024-based)",
    )
    add(
        "--host-keep",
        type=int,
        metavar="N",
        help="number of slabs that stay in host memory (default: all)",
    )
    add(
        "--max-tokens", type=int, default=32, metavar="N", help="number of new tokens (default: 32)"
    )
    add("--ignore-eos", action="store_true", help="continue after the model's end of text")
    add("--chat", action="store_true", help="apply the model's chat format to the prompt")
    add("--cupti", action="store_true", help="name allocations of libraries, with NVIDIA's CUPTI")
    add("-o", "--output", metavar="RECORDING", help="the recording to write")
    add("--keep-last", metavar="SIZE", default=DEFAULT_KEEP_LAST, help=KEEP_LAST_HELP)
    add("--force", action="store_true", help="overwrite the recording")
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Decode, then print the text and where the recording is."""
    path = Path(args.output) if args.output else default_path("decode", ".mscope")
    decoded = decode_recorded(args, path)
    if args.json:
        print(json.dumps(to_json(decoded, path)))
        return 0
    print(decoded.text)
    print(f"recording: {path}  (memscope summary {path})", file=sys.stderr)
    return 0


def decode_recorded(args: argparse.Namespace, path: Path) -> Decoded:
    """Decode as `args` says, and record it at `path`."""
    with require("runner", "torch", "safetensors", "tokenizers", "gguf"):
        from memscope_runners.checkpoint.fetch import open_model
        from memscope_runners.decode import decode, prepare
    from memscope.launch.record import record
    from memscope.recorder.output_file import check_writable

    check_writable(path, force=args.force)
    parse_keep_last(args.keep_last)
    settings = settings_of(args)
    with ProgressBars() as bars:
        checkpoint = open_model(args.model, bars.update)
        loaded = f"{clean(checkpoint.name, 80)}: {checkpoint.config.describe()}"
        print(f"memscope: {loaded}", file=sys.stderr)
        request = prepare(
            checkpoint,
            args.prompt,
            settings,
            max_tokens=args.max_tokens,
            ignore_eos=args.ignore_eos,
            is_chat=args.chat,
        )
        recorder = record(path, force=args.force, cupti=args.cupti, keep_last=args.keep_last)
        with recorder, exit_code_recorded(recorder):
            measure_empty(recorder, settings.device)
            tokens = itertools.count(1)
            return decode(
                request,
                recorder=recorder,
                on_token=lambda _: bars.update("decoding", next(tokens), args.max_tokens),
                progress=bars.update,
            )


def measure_empty(recorder: Recorder, device: str) -> None:
    """Record the size of the CUDA context, while nothing else is on the GPU."""
    from memscope.probes.torch.context import measure_context

    kind, _, index = device.partition(":")
    if kind == "cuda":
        measure_context(recorder, int(index or 0))


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings in `args`. Raises MemscopeError if the device or a size is invalid."""
    from memscope_runners.memory.choice import choose_device
    from memscope_runners.settings import Settings

    device = choose_device(args.device)
    if args.device is None:
        print(f"memscope: {device.reason}", file=sys.stderr)
    limit = None if args.device_limit is None else parse_bytes(args.device_limit)
    return Settings(
        policy=args.policy or ("off" if args.keep is None else "past"),
        keep=args.keep,
        allocator=args.allocator,
        unit=args.unit,
        prefetch=args.prefetch,
        preload=args.preload,
        device_limit_bytes=limit,
        device=device.name,
        host_keep=args.host_keep,
    )


@contextlib.contextmanager
def exit_code_recorded(recorder: Recorder) -> Iterator[None]:
    """Record the exit code of this run as a fact."""
    try:
        yield
    except MemscopeError as error:
        recorder.fact(Fact.EXIT_CODE, error.exit_code)
        raise
    recorder.fact(Fact.EXIT_CODE, 0)


def to_json(decoded: Decoded, path: Path) -> dict[str, object]:
    """What `decode --json` prints: text, token ids, a CRC for each step, times, recording."""
    return {
        "text": decoded.text,
        "prompt_ids": decoded.prompt_ids,
        "token_ids": decoded.token_ids,
        "logits_crc32": decoded.logits_crcs,
        "ms_per_token": median_ms(decoded.durations_ns[1:]),
        "recording": str(path),
    }


def median_ms(durations_ns: list[int]) -> float | None:
    """The median in milliseconds. None if there is no value."""
    return statistics.median(durations_ns) / 1e6 if durations_ns else None
