"""Record `generate` of a small random transformers model: python examples/generate.py [OUT]

On a GPU where there is one. Then: memscope summary generate.mscope
"""

from __future__ import annotations

import sys

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

import memscope

TOKENS = 64
REQUESTS = 3


def main(path: str = "generate.mscope", tokens: int = TOKENS) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with memscope.record(path, force=True) as recorder:
        with recorder.phase("load"):
            model = Qwen3ForCausalLM(small_config()).to(device).eval()
        memscope.watch(model)
        for request in range(REQUESTS):
            recorder.mark(f"request {request}")
            prompt = torch.randint(0, model.config.vocab_size, (1, 8 + 4 * request), device=device)
            model.generate(prompt, max_new_tokens=tokens, do_sample=False, pad_token_id=0)
    print(f"{REQUESTS} requests of {tokens} tokens on {device}: memscope summary {path}")


def small_config() -> Qwen3Config:
    return Qwen3Config(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        eos_token_id=None,
    )


if __name__ == "__main__":
    main(*sys.argv[1:2])
