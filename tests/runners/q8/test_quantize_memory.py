"""What quantizing a checkpoint takes of the host's memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from memscope_runners.checkpoint.huggingface import HuggingFaceModel
from tests.runners.checkpoint.family_files import save_by_hand

SHARD_BYTES = 50_000_000
MEASURE = """
import json, sys
from pathlib import Path
import torch
from memscope_runners.checkpoint.checkpoint_writer import write_checkpoint
from memscope_runners.checkpoint.huggingface import HuggingFaceModel

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":"))

small, large, target = map(Path, sys.argv[1:])
torch.set_num_threads(2)
write_checkpoint(HuggingFaceModel(small), target)  # loads libraries and starts threads
Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
before = status("VmRSS")
write_checkpoint(HuggingFaceModel(large), target)
print(json.dumps(status("VmHWM") - before))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc and madvise are Linux's")
def test_a_sharded_checkpoint_takes_no_more_than_a_slab_and_a_shard(tmp_path: Path) -> None:
    small, large, target = (tmp_path / name for name in ("small", "large", "q8"))
    save_by_hand(small, "qwen3")
    save_by_hand(
        large,
        "qwen3",
        dtype=torch.bfloat16,
        shard_bytes=SHARD_BYTES,
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=26,
        vocab_size=8192,
    )
    shards = list(large.glob("*.safetensors"))
    whole = sum(path.stat().st_size for path in shards)
    assert len(shards) >= 4
    assert whole >= 190_000_000
    command = [sys.executable, "-c", MEASURE, *map(str, (small, large, target))]
    done = subprocess.run(command, capture_output=True, text=True)
    if "clear_refs" in done.stderr:
        pytest.skip("this kernel cannot reset the peak of a process")
    growth = int(json.loads(done.stdout))
    config = HuggingFaceModel(large).config
    slab = max(config.layer_layout.bytes, config.head_layout.bytes)
    largest = max(path.stat().st_size for path in shards)
    print(f"{whole / 1e6:.0f} MB, peak {growth / 1e6:.1f} MB: a slab has {slab / 1e6:.1f} MB")
    assert growth <= slab + largest < whole / 3
