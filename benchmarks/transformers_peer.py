"""The q8 decoder beside transformers in float32: same model, threads and prompt."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import perf_counter_ns
from typing import Any

import torch

from memscope.cli.bench import print_table, run_script
from memscope.cli.progress import ProgressBars
from memscope_runners.checkpoint.fetch import open_model
from memscope_runners.checkpoint.huggingface import NAMES
from memscope_runners.decoder import Decoder
from memscope_runners.q8.weights import CheckpointSource
from memscope_runners.settings import Settings

ROUNDS = 6
TOKENS_A_ROUND = 24
PROMPT = "The capital of France is"


@dataclass(frozen=True, slots=True)
class Peer:
    """Medians of interleaved rounds, every layer resident in both."""

    ms_per_token: float
    transformers_ms_per_token: float
    are_tokens_equal: bool

    @property
    def ratio(self) -> float:
        """Ours over theirs."""
        return self.ms_per_token / self.transformers_ms_per_token

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio}

    def rows(self) -> list[tuple[str, str, str]]:
        """What, how much, and the bound, as a table's rows."""
        return [
            ("ms a token, resident, q8", f"{self.ms_per_token:.2f}", ""),
            ("ms a token, transformers float32", f"{self.transformers_ms_per_token:.2f}", ""),
            ("q8 / transformers", f"{self.ratio:.2f}", "≤ 1.6"),
            ("the same tokens", "yes" if self.are_tokens_equal else "no", ""),
        ]


def measure_peer(
    checkpoint: CheckpointSource, *, progress: Callable[[str, int, int], None]
) -> Peer:
    """Both continue the same prompt greedily, round by round in turn."""
    prompt_ids = checkpoint.tokenizer.encode(PROMPT)
    model = build_transformers(checkpoint)
    ours: list[float] = []
    theirs: list[float] = []
    same = True
    for round_number in range(ROUNDS):
        our_ids, our_ms = _decode_ours(checkpoint, prompt_ids)
        their_ids, their_ms = _decode_theirs(model, prompt_ids)
        ours, theirs, same = ours + our_ms, theirs + their_ms, same and our_ids == their_ids
        progress("rounds beside transformers", round_number + 1, ROUNDS)
    return Peer(statistics.median(ours), statistics.median(theirs), same)


def build_transformers(checkpoint: CheckpointSource) -> Any:
    """A LlamaForCausalLM with the checkpoint's q8 weights, dequantized to float32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = checkpoint.config
    model: Any = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab,
            hidden_size=config.hidden,
            intermediate_size=config.intermediate,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.context,
            rms_norm_eps=config.norm_epsilon,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=config.is_tied,
        )
    )
    model.load_state_dict(_state_dict(checkpoint), strict=False)
    return model.eval()


def _state_dict(checkpoint: CheckpointSource) -> dict[str, torch.Tensor]:
    layers = checkpoint.config.layers
    state = {}
    for layer in range(layers):
        weights = checkpoint.layer_layout.weights(checkpoint.slab(layer))
        for name, weight in weights.items():
            state[f"model.layers.{layer}.{NAMES[name]}.weight"] = weight.dequantize()
    head = checkpoint.head_layout.weights(checkpoint.slab(layers))["lm_head"].dequantize()
    state["lm_head.weight"] = state["model.embed_tokens.weight"] = head
    for name, tensor in checkpoint.fixed.items():
        prefix, _, last = name.rpartition(".")
        if name == "embedding":
            state["model.embed_tokens.weight"] = tensor.float()
        elif prefix:
            state[f"model.{prefix}.{NAMES[last]}.weight"] = tensor.float()
        else:
            state["model.norm.weight"] = tensor.float()
    return state


def _decode_ours(
    checkpoint: CheckpointSource, prompt_ids: list[int]
) -> tuple[list[int], list[float]]:
    decoder = Decoder(checkpoint, Settings(), len(prompt_ids) + TOKENS_A_ROUND)
    decoded = decoder.generate(prompt_ids, max_tokens=TOKENS_A_ROUND, ignore_eos=True)
    decoder.close()
    return decoded.token_ids, [duration_ns / 1e6 for duration_ns in decoded.durations_ns[2:]]


@torch.inference_mode()
def _decode_theirs(model: Any, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
    inputs, cache = torch.tensor([prompt_ids]), None
    token_ids: list[int] = []
    durations: list[float] = []
    for _ in range(TOKENS_A_ROUND):
        started_ns = perf_counter_ns()
        output = model(inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        token_ids.append(int(output.logits[0, -1].argmax()))
        durations.append((perf_counter_ns() - started_ns) / 1e6)
        inputs, cache = torch.tensor([[token_ids[-1]]]), output.past_key_values
    return token_ids, durations[2:]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The script's options."""
    parser.add_argument("--model", help="model to decode with (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    with ProgressBars() as bars:
        peer = measure_peer(open_model(args.model, bars.update), progress=bars.update)
    if args.json:
        print(json.dumps(peer.to_json()))
    else:
        print_table(peer.rows())
    return 0


if __name__ == "__main__":
    sys.exit(run_script(__doc__, add_arguments, run))
