"""Settings of vLLM and SGLang that give torch's own allocations more room while they serve.

Both take a fixed share of the card for weights and KV cache; what fails inside torch afterwards
lies beside that share, so that a smaller share helps.
"""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.diagnosis.explanation import Advice
from memscope.analysis.diagnosis.server_share import card_total
from memscope.analysis.diagnosis.situation import Situation, lower_share, torch_size

# Diagnoses in which more room on the card, outside the server's share, would have helped.
_ROOM_HELPS = ("fragmentation", "shortage", "private_pools", "pending_frees")
_SHARES = {"vllm": "gpu_memory_utilization", "sglang": "mem_fraction_static"}


def server_help(diagnosis: str, situation: Situation) -> tuple[Advice, ...]:
    """Flags of the server that wrote the log, () where there is none or none would help."""
    server = situation.context.server
    if server not in _SHARES:
        return ()
    if diagnosis == "outside":
        return tuple(_share_of_what_is_free(situation))
    if diagnosis not in _ROOM_HELPS:
        return ()
    if situation.is_loading:
        return tuple(_fewer_weights(situation))
    return (*_smaller_share(situation), *_FLAGS[server](situation))


def server_no_help(diagnosis: str, situation: Situation) -> tuple[Advice, ...]:
    """Flags of the server that seem to help and would not."""
    server = situation.context.server
    if diagnosis not in _ROOM_HELPS or server not in _SHARES:
        return ()
    if situation.is_loading:
        reason = "what they govern comes after the weights"
        return (Advice(_AFTER_WEIGHTS[server], reason),)
    if server != "vllm":
        return ()
    return (
        Advice("--kv-cache-dtype fp8", "the same share is filled with more KV blocks"),
        Advice("--max-model-len lower", "the KV cache keeps its share"),
    )


_AFTER_WEIGHTS = {
    "vllm": "--gpu-memory-utilization, --max-num-seqs, --max-model-len",
    "sglang": "--mem-fraction-static, --max-running-requests",
}


def _fewer_weights(situation: Situation) -> Iterator[Advice]:
    """What makes a model fit that did not while it was read."""
    size = situation.context.option("tensor_parallel_size")
    doubled = f"{int(size) * 2}" if size and 1 <= size <= 64 else "higher"
    name = "--tp-size" if situation.context.server == "sglang" else "--tensor-parallel-size"
    yield Advice(f"{name} {doubled}", "weights are split over the cards")
    yield Advice("--quantization fp8, or a quantized model", "half or a quarter of 16-bit weights")
    yield Advice("--cpu-offload-gb N", "N GiB of weights a card stay in host memory; slow")
    yield Advice("a larger card", "all weights must fit, KV cache beside them")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _smaller_share(situation: Situation) -> Iterator[Advice]:
    name, message = _SHARES[situation.context.server], situation.message
    total = message.total.bytes if message.total else card_total(situation.context)
    if not total:
        short = situation.shortfall
        amount = f": take off {torch_size(short)} / its size (nvidia-smi)" if short else ""
        yield Advice(f"{_flag(name)} lower", f"a share of the card{amount}", short or None)
        return
    shortfall = max(situation.shortfall, 1)
    share = situation.context.option(name)
    if share is None or not 0 < share <= 1:
        step = -(-100 * shortfall // total) / 100
        reason = f"at least; a share of the card's {torch_size(total)}"
        if step < 1:
            yield Advice(f"{_flag(name)} lower by {step:.2f}", reason, round(step * total))
        return
    lower = lower_share(share, shortfall, total)
    if lower > 0:
        freed = round((share - lower) * total)
        yield Advice(f"{_flag(name)} {lower:.2f}", f"at most; it was {share:.2f}", freed)


def _share_of_what_is_free(situation: Situation) -> Iterator[Advice]:
    """A share that fits beside what others hold."""
    name, balance = _SHARES[situation.context.server], situation.balance
    total, free = situation.message.total, situation.message.free
    if total is None or free is None or not total.bytes:
        return
    held = situation.message.reserved.bytes if situation.message.reserved else 0
    others = balance.others if balance.others is not None else total.bytes - free.bytes - held
    share = (total.bytes - others) * 100 // total.bytes / 100
    if 0 < share < 1:
        yield Advice(f"{_flag(name)} {share:.2f}", "at most, beside what others hold")


def _vllm_flags(situation: Situation) -> Iterator[Advice]:
    context = situation.context
    seqs = context.option("max_num_seqs")
    lower = f" {int(seqs) // 2}" if seqs and 2 <= seqs < 1e6 else " lower"
    yield Advice(f"--max-num-seqs{lower}", "smaller activations, sampler and graphs")
    yield Advice("--max-num-batched-tokens lower", "the peak of activations follows it")
    if context.options.get("enforce_eager", "").lower() != "true":
        graphs = context.accounts.get("graphs")
        yield Advice(
            "--enforce-eager", "no CUDA graphs; slower decoding", graphs.bytes if graphs else None
        )


def _sglang_flags(situation: Situation) -> Iterator[Advice]:
    yield Advice("--chunked-prefill-size lower", "the peak of activations follows it")
    yield Advice("--max-running-requests lower", "smaller batches and graphs")
    if situation.context.options.get("disable_cuda_graph", "").lower() != "true":
        yield Advice("--cuda-graph-max-bs lower, --disable-cuda-graph", "fewer graphs, or none")


_FLAGS = {"vllm": _vllm_flags, "sglang": _sglang_flags}
