"""Flags of vLLM and SGLang that help when torch itself runs out of memory in a server.

Both servers take a fixed share of the card for weights and KV cache. What torch allocates later
lies beside that share, so a smaller share helps.
"""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.diagnosis.explanation import Advice, Diagnosis
from memscope.analysis.diagnosis.failed_request import FailedRequest, lower_share
from memscope.analysis.diagnosis.log.vllm_flags import card_total, no_graphs
from memscope.interop.oom_log.context import Server
from memscope.units import torch_size

# More room on the card outside the server's share would have helped.
_ROOM_HELPS = (
    Diagnosis.FRAGMENTATION,
    Diagnosis.SHORTAGE,
    Diagnosis.PRIVATE_POOLS,
    Diagnosis.PENDING_FREES,
)
_SHARES = {
    Server.VLLM: "gpu_memory_utilization",
    Server.SGLANG: "mem_fraction_static",
}
_AFTER_WEIGHTS = {
    Server.VLLM: "--gpu-memory-utilization, --max-num-seqs, --max-model-len",
    Server.SGLANG: "--mem-fraction-static, --max-running-requests",
}


def server_help(diagnosis: Diagnosis, request: FailedRequest) -> tuple[Advice, ...]:
    """Flags that would help, of the server that wrote the log; () if there are none."""
    server = request.context.server
    if server not in _SHARES:
        return ()
    if diagnosis is Diagnosis.OUTSIDE:
        return tuple(_share_of_what_is_free(server, request))
    if diagnosis not in _ROOM_HELPS:
        return ()
    if request.is_loading:
        return tuple(_fewer_weights(request))
    flags = _sglang_flags if server is Server.SGLANG else _vllm_flags
    return (*_smaller_share(server, request), *flags(request))


def server_no_help(diagnosis: Diagnosis, request: FailedRequest) -> tuple[Advice, ...]:
    """Flags of the server that seem to help and would not."""
    server = request.context.server
    if diagnosis not in _ROOM_HELPS or server not in _SHARES:
        return ()
    if request.is_loading:
        return (Advice(_AFTER_WEIGHTS[server], "they apply after the weights are loaded"),)
    if server is not Server.VLLM:
        return ()
    return (
        Advice("--kv-cache-dtype fp8", "the same share is filled with more KV blocks"),
        Advice("--max-model-len lower", "the KV cache keeps its share"),
    )


def _fewer_weights(request: FailedRequest) -> Iterator[Advice]:
    """What makes a model fit that ran out of memory while it was loaded."""
    size = request.context.option("tensor_parallel_size")
    doubled = f"{int(size) * 2}" if size and 1 <= size <= 64 else "higher"
    is_sglang = request.context.server is Server.SGLANG
    name = "--tp-size" if is_sglang else "--tensor-parallel-size"
    yield Advice(f"{name} {doubled}", "weights are split over the cards")
    yield Advice("--quantization fp8, or a quantized model", "half or a quarter of 16-bit weights")
    yield Advice("--cpu-offload-gb N", "N GiB of weights a card stay in host memory; slow")
    yield Advice("a larger card", "all weights and the KV cache must fit")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _smaller_share(server: Server, request: FailedRequest) -> Iterator[Advice]:
    name, message = _SHARES[server], request.message
    total = message.total.bytes if message.total else card_total(request.context)
    if not total:
        short = request.shortfall_bytes
        lower = f": subtract {torch_size(short)} / its size (nvidia-smi)" if short else ""
        yield Advice(f"{_flag(name)} lower", f"a share of the card{lower}", short or None)
        return
    shortfall = max(request.shortfall_bytes, 1)
    share = request.context.option(name)
    if share is None or not 0 < share <= 1:
        step = -(-100 * shortfall // total) / 100
        reason = f"at least; a share of the card's {torch_size(total)}"
        if step < 1:
            yield Advice(f"{_flag(name)} lower by {step:.2f}", reason, round(step * total))
        return
    smaller = lower_share(share, shortfall, total)
    if smaller > 0:
        freed = round((share - smaller) * total)
        yield Advice(f"{_flag(name)} {smaller:.2f}", f"at most; it was {share:.2f}", freed)


def _share_of_what_is_free(server: Server, request: FailedRequest) -> Iterator[Advice]:
    """A share that fits beside what others hold."""
    balance = request.balance
    total, free = request.message.total, request.message.free
    if total is None or free is None or not total.bytes:
        return
    others = balance.others_bytes
    if others is None:
        held = request.message.reserved.bytes if request.message.reserved else 0
        others = total.bytes - free.bytes - held
    share = (total.bytes - others) * 100 // total.bytes / 100
    if 0 < share < 1:
        yield Advice(f"{_flag(_SHARES[server])} {share:.2f}", "at most, beside what others hold")


def _vllm_flags(request: FailedRequest) -> Iterator[Advice]:
    context = request.context
    seqs = context.option("max_num_seqs")
    lower = f" {int(seqs) // 2}" if seqs and 2 <= seqs < 1e6 else " lower"
    yield Advice(f"--max-num-seqs{lower}", "smaller activations, sampler and graphs")
    yield Advice("--max-num-batched-tokens lower", "a lower peak of activations")
    yield from no_graphs(context)


def _sglang_flags(request: FailedRequest) -> Iterator[Advice]:
    yield Advice("--chunked-prefill-size lower", "a lower peak of activations")
    yield Advice("--max-running-requests lower", "smaller batches and graphs")
    if not request.context.is_on("disable_cuda_graph"):
        yield Advice("--cuda-graph-max-bs lower, --disable-cuda-graph", "fewer graphs, or none")
