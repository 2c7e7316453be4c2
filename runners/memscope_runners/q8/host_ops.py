"""A layer on the host: torch, and the q8 product of this machine."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional

from memscope_runners.q8.config import ModelConfig
from memscope_runners.q8.kv_cache import KvCache
from memscope_runners.q8.linear import Product, linear, one_thread
from memscope_runners.q8.ops import FixedLayer, Rope
from memscope_runners.q8.weights import Weight


class HostOps:
    """Float32 throughout; weights may be q8 or plain tensors."""

    def __init__(self, config: ModelConfig, q8_product: Product | None = None) -> None:
        self._config = config
        self._q8_product = q8_product

    def norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, weight.shape, weight, self._config.norm_epsilon)

    def attention(
        self,
        x: torch.Tensor,
        weights: Mapping[str, Weight],
        fixed: FixedLayer,
        rope: Rope,
        kv: KvCache,
        layer: int,
    ) -> torch.Tensor:
        config, tokens = self._config, x.shape[0]
        normed = self.norm(x, fixed.attention_norm)
        rows = (config.heads, config.kv_heads, config.kv_heads)
        flat = [self.product(normed, weights[name]) for name in "qkv"]
        if fixed.qkv_bias is not None:
            biases = torch.split(fixed.qkv_bias, [count * config.head_dim for count in rows])
            flat = [part + bias for part, bias in zip(flat, biases, strict=True)]
        q, k, v = (
            part.view(tokens, count, config.head_dim).transpose(0, 1)
            for part, count in zip(flat, rows, strict=True)
        )  # (heads, tokens, head_dim)
        if fixed.qk_norms is not None:
            q, k = self.norm(q, fixed.qk_norms[0]), self.norm(k, fixed.qk_norms[1])
        rotated = rotate(torch.cat((q, k)), rope)
        q, k = rotated[: config.heads], rotated[config.heads :]
        keys, values = kv.extend(layer, k, v)
        mixed = attend(q, keys, values)
        return x + self.product(mixed.transpose(0, 1).reshape(tokens, -1), weights["o"])

    def mlp(
        self, x: torch.Tensor, weights: Mapping[str, Weight], fixed: FixedLayer
    ) -> torch.Tensor:
        normed = self.norm(x, fixed.mlp_norm)
        gate = functional.silu(self.product(normed, weights["gate"]), inplace=True)
        gate *= self.product(normed, weights["up"])
        return x + self.product(gate, weights["down"])

    def product(self, x: torch.Tensor, weight: Weight) -> torch.Tensor:
        return linear(x, weight, self._q8_product)


def rotate(x: torch.Tensor, rope: Rope) -> torch.Tensor:
    """Rotary embedding of (heads, tokens, head_dim), halves paired as Hugging Face's Llama does."""
    cosines, sines = rope
    first, second = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-second, first), dim=-1) * sines


def attend(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Causal attention of the last q.shape[1] positions: (heads, tokens, head_dim) in and out.

    `keys` and `values` are (kv_heads, past + tokens, head_dim); heads share them in groups.
    """
    tokens, total = q.shape[1], keys.shape[1]
    if tokens == 1:  # the heads of a group are queries on the same keys: (kv_heads, group, dim)
        grouped = q.reshape(1, keys.shape[0], -1, q.shape[2])
        with one_thread():
            mixed = functional.scaled_dot_product_attention(grouped, keys[None], values[None])
        return mixed.view(q.shape)
    mask = torch.ones(tokens, total, dtype=torch.bool).tril(total - tokens)
    return functional.scaled_dot_product_attention(
        q[None], keys[None], values[None], attn_mask=mask, enable_gqa=True
    )[0]
