"""Models with published sizes and random weights, for measurements without a download.

Sizes as the models' own config.json on Hugging Face states them: Qwen/Qwen3-VL-2B-Instruct (its
text tower), Qwen/Qwen3-8B, Qwen/Qwen3-32B.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch

from memscope_runners.checkpoint.checkpoint import Checkpoint
from memscope_runners.checkpoint.synthetic import SEED, SyntheticModel
from memscope_runners.checkpoint.tokenizer import Tokenizer
from memscope_runners.progress import Progress
from memscope_runners.q8.config import ModelConfig
from memscope_runners.q8.slab import GROUP, SlabLayout

THREADS = 8
BYTE_STD = 73.9  # standard deviation of −128 … 127, each as likely

QWEN3_VL_2B = ModelConfig(
    name="synthetic:qwen3-vl-2b",
    layers=28,
    hidden=2048,
    intermediate=6144,
    heads=16,
    kv_heads=8,
    head_dim=128,
    vocab=151936,
    context=4096,
    rope_theta=5_000_000.0,
    norm_epsilon=1e-6,
    is_tied=True,
    eos_token_ids=(),
    has_qk_norms=True,
    family="Qwen3-VL, its text tower",
)
GEOMETRIES: Mapping[str, ModelConfig] = {
    config.name: config
    for config in (
        QWEN3_VL_2B,
        replace(
            QWEN3_VL_2B,
            name="synthetic:qwen3-8b",
            layers=36,
            hidden=4096,
            intermediate=12288,
            heads=32,
            rope_theta=1_000_000.0,
            is_tied=False,
            family="Qwen3",
        ),
        replace(
            QWEN3_VL_2B,
            name="synthetic:qwen3-32b",
            layers=64,
            hidden=5120,
            intermediate=25600,
            heads=64,
            rope_theta=1_000_000.0,
            is_tied=False,
            family="Qwen3",
        ),
    )
}


def random_checkpoint(config: ModelConfig, progress: Progress) -> Checkpoint:
    """A checkpoint of these sizes with random q8 weights, the same in every run."""
    model = SyntheticModel(config)
    layouts = [config.layer_layout] * config.layers + [config.head_layout]
    slabs: list[torch.Tensor] = []
    with ThreadPoolExecutor(THREADS) as pool:
        for slab in pool.map(random_slab, layouts, range(len(layouts))):
            slabs.append(slab)
            progress("random weights", len(slabs), len(layouts))
    return Checkpoint(
        name=config.name,
        config=config,
        tokenizer=Tokenizer(model.tokenizer_file),
        fixed={name: fixed_tensor(model, name) for name in config.fixed_shapes()},
        slabs=slabs,
    )


def random_slab(layout: SlabLayout, seed: int) -> torch.Tensor:
    """Random int8 weights, scaled so that a product keeps the magnitude of its input."""
    generator = np.random.Generator(np.random.SFC64((SEED, seed)))
    words = generator.integers(0, 2**64, layout.bytes // 8, dtype=np.uint64)
    slab = torch.from_numpy(words).view(torch.uint8)
    for entry in layout.entries:
        scale = 1.0 / (BYTE_STD * entry.columns**0.5)
        groups = entry.rows * entry.columns // GROUP
        spread = generator.uniform(0.7, 1.3, groups).astype(np.float32) * scale
        view = slab[entry.scale_start : entry.scale_start + entry.scale_bytes]
        view.view(torch.float16).copy_(torch.from_numpy(spread))
    return slab


def fixed_tensor(model: SyntheticModel, name: str) -> torch.Tensor:
    """A norm or bias as in the small synthetic models; the embedding in float16."""
    tensor = model.tensor(name)
    return tensor.half() if name == "embedding" else tensor
