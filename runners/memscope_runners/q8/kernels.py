# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
"""The decoder's kernels in Triton: q8 products and what stands between them, on one GPU.

Every sum is taken in a fixed order in float32, without atomics and with fixed block sizes, so that
the same inputs give the same bits in every run. Shapes are for one token unless said otherwise.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from memscope_runners.q8.slab import GROUP, Q8Weight

ROWS = 4  # rows a program computes; the weight streams through once
GROUPS = 32  # groups of 32 columns a program takes at a time
WARPS = 4


@triton.jit
def _dot(
    x, q, scale, row, is_row,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Rows `row` of q × scale times x (columns,): float32 (ROWS,)."""
    groups: tl.constexpr = COLUMNS // 32
    group = tl.arange(0, GROUPS)
    lane = tl.arange(0, 32)
    total = tl.zeros((ROWS, GROUPS), dtype=tl.float32)
    for start in range(0, groups, GROUPS):
        here = start + group
        is_here = here < groups
        column = here[:, None] * 32 + lane[None, :]  # (GROUPS, 32)
        part_x = tl.load(x + column, mask=is_here[:, None], other=0.0)
        mask = is_row[:, None, None] & is_here[None, :, None]
        at = row[:, None, None].to(tl.int64) * COLUMNS + column[None, :, :]
        part_q = tl.load(q + at, mask=mask, other=0).to(tl.float32)  # (ROWS, GROUPS, 32)
        at_scale = row[:, None].to(tl.int64) * groups + here[None, :]
        is_scale = is_row[:, None] & is_here[None, :]
        part_scale = tl.load(scale + at_scale, mask=is_scale, other=0.0).to(tl.float32)
        total += tl.sum(part_q * part_x[None, :, :], axis=2) * part_scale
    return tl.sum(total, axis=1)


@triton.jit
def _product_kernel(
    x, q, scale, residual, out, rows,
    COLUMNS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, ROWS: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """out (tokens, rows) = x (tokens, columns) · (q × scale)ᵀ, plus `residual`."""
    token = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = row < rows
    value = _dot(x + token * COLUMNS, q, scale, row, is_row, COLUMNS, ROWS, GROUPS)
    at = token * rows + row
    if HAS_RESIDUAL:
        value += tl.load(residual + at, mask=is_row, other=0.0)
    tl.store(out + at, value, mask=is_row)


@triton.jit
def _gated_kernel(
    x, gate_q, gate_scale, up_q, up_scale, out, rows,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """out (tokens, rows) = silu(x · gateᵀ) × (x · upᵀ)."""
    token = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = row < rows
    x += token * COLUMNS
    gate = _dot(x, gate_q, gate_scale, row, is_row, COLUMNS, ROWS, GROUPS)
    up = _dot(x, up_q, up_scale, row, is_row, COLUMNS, ROWS, GROUPS)
    tl.store(out + token * rows + row, gate / (1.0 + tl.exp(-gate)) * up, mask=is_row)


@triton.jit
def _qkv_kernel(
    x, q_q, q_scale, k_q, k_scale, v_q, v_scale, bias, out, q_rows, kv_rows,
    COLUMNS: tl.constexpr, HAS_BIAS: tl.constexpr, ROWS: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """out (tokens, q_rows + 2 × kv_rows): the three products behind one another.

    `q_rows` and `kv_rows` are multiples of ROWS, so a program belongs to one of the three.
    """
    token = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * ROWS
    total = q_rows + 2 * kv_rows
    weight, scale, start = q_q, q_scale, first * 0
    if first >= q_rows + kv_rows:
        weight, scale, start = v_q, v_scale, q_rows + kv_rows
    elif first >= q_rows:
        weight, scale, start = k_q, k_scale, q_rows
    at = first + tl.arange(0, ROWS)
    is_row = at < total
    value = _dot(x + token * COLUMNS, weight, scale, at - start, is_row, COLUMNS, ROWS, GROUPS)
    if HAS_BIAS:
        value += tl.load(bias + at, mask=is_row, other=0.0)
    tl.store(out + token * total + at, value, mask=is_row)


@triton.jit
def _norm_kernel(x, weight, out, width, epsilon, WIDTH: tl.constexpr):
    """RMSNorm of x (tokens, width)."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    mask = column < width
    value = tl.load(x + token * width + column, mask=mask, other=0.0)
    rate = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / width + epsilon)
    scaled = value * rate * tl.load(weight + column, mask=mask, other=0.0)
    tl.store(out + token * width + column, scaled, mask=mask)


@triton.jit
def _rotate_kernel(
    qkv, cosines, sines, q_norm, k_norm, queries, keys, values,
    heads, kv_heads, position, kv_tokens, epsilon,
    HAS_NORM: tl.constexpr, HALF: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    """Rope for q and k, norms of theirs before it where the model has them; k and v to the cache.

    qkv (tokens, (heads + 2 kv_heads) × HEAD) → queries (heads, tokens, HEAD) and rows `position` +
    token of keys and values (kv_heads, kv_tokens, HEAD). One program a head and token.
    """
    head, token = tl.program_id(0), tl.program_id(1)
    tokens = tl.num_programs(1)
    lane = tl.arange(0, HALF)
    is_lane = lane < HEAD // 2
    row = (token.to(tl.int64) * (heads + 2 * kv_heads) + head) * HEAD
    first = tl.load(qkv + row + lane, mask=is_lane, other=0.0)
    second = tl.load(qkv + row + HEAD // 2 + lane, mask=is_lane, other=0.0)
    if head >= heads + kv_heads:
        to = values + ((head - heads - kv_heads).to(tl.int64) * kv_tokens + position + token) * HEAD
        tl.store(to + lane, first, mask=is_lane)
        tl.store(to + HEAD // 2 + lane, second, mask=is_lane)
    else:
        if HAS_NORM:
            weight = q_norm
            if head >= heads:
                weight = k_norm
            rate = 1.0 / tl.sqrt(
                (tl.sum(first * first, axis=0) + tl.sum(second * second, axis=0)) / HEAD + epsilon
            )
            first *= rate * tl.load(weight + lane, mask=is_lane, other=0.0)
            second *= rate * tl.load(weight + HEAD // 2 + lane, mask=is_lane, other=0.0)
        cosine = tl.load(cosines + token * HEAD + lane, mask=is_lane, other=0.0)
        sine = tl.load(sines + token * HEAD + lane, mask=is_lane, other=0.0)
        to = queries + (head.to(tl.int64) * tokens + token) * HEAD
        if head >= heads:
            to = keys + ((head - heads).to(tl.int64) * kv_tokens + position + token) * HEAD
        tl.store(to + lane, first * cosine - second * sine, mask=is_lane)
        tl.store(to + HEAD // 2 + lane, second * cosine + first * sine, mask=is_lane)


@triton.jit
def _attend_kernel(
    queries, keys, values, out, heads, group, past, kv_tokens, scale,
    HEAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Causal attention of one head and token over the cache, in one pass with a running maximum.

    queries (heads, tokens, HEAD), keys and values (kv_heads, kv_tokens, HEAD); token t sees
    positions 0 … past + t. out (tokens, heads × HEAD).
    """
    head, token = tl.program_id(0), tl.program_id(1)
    tokens = tl.num_programs(1)
    lane = tl.arange(0, HEAD)
    query = tl.load(queries + (head.to(tl.int64) * tokens + token) * HEAD + lane) * scale
    start = (head // group).to(tl.int64) * kv_tokens * HEAD
    seen = past + token + 1
    top = tl.full((), -float("inf"), tl.float32)
    weight_sum = tl.full((), 0.0, tl.float32)
    total = tl.zeros((HEAD,), dtype=tl.float32)
    for first in range(0, seen, BLOCK):
        position = first + tl.arange(0, BLOCK)
        is_seen = position < seen
        at = start + position[:, None].to(tl.int64) * HEAD + lane[None, :]
        key = tl.load(keys + at, mask=is_seen[:, None], other=0.0)
        score = tl.sum(key * query[None, :], axis=1)
        score = tl.where(is_seen, score, -float("inf"))
        new_top = tl.maximum(top, tl.max(score, axis=0))
        keep = tl.exp(top - new_top)
        weight = tl.exp(score - new_top)
        value = tl.load(values + at, mask=is_seen[:, None], other=0.0)
        total = total * keep + tl.sum(weight[:, None] * value, axis=0)
        weight_sum = weight_sum * keep + tl.sum(weight, axis=0)
        top = new_top
    to = out + (token.to(tl.int64) * heads + head) * HEAD + lane
    tl.store(to, total / weight_sum)


def product(
    x: torch.Tensor, weight: Q8Weight, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """x (tokens, columns) · weightᵀ (+ residual (tokens, rows)) → float32 (tokens, rows)."""
    rows, columns = weight.shape
    tokens = x.shape[0]
    out = torch.empty(tokens, rows, device=x.device)
    _product_kernel[(triton.cdiv(rows, ROWS), tokens)](
        x, weight.q, weight.scale, x if residual is None else residual, out, rows,
        columns, residual is not None, ROWS, GROUPS, num_warps=WARPS,
    )  # fmt: skip
    return out


def gated(x: torch.Tensor, gate: Q8Weight, up: Q8Weight) -> torch.Tensor:
    """silu(x · gateᵀ) × (x · upᵀ): (tokens, columns) → float32 (tokens, rows)."""
    rows, columns = gate.shape
    tokens = x.shape[0]
    out = torch.empty(tokens, rows, device=x.device)
    _gated_kernel[(triton.cdiv(rows, ROWS), tokens)](
        x, gate.q, gate.scale, up.q, up.scale, out, rows, columns, ROWS, GROUPS, num_warps=WARPS
    )
    return out


def qkv(
    x: torch.Tensor, q: Q8Weight, k: Q8Weight, v: Q8Weight, bias: torch.Tensor | None
) -> torch.Tensor:
    """The three products behind one another: (tokens, columns) → float32 (tokens, all rows)."""
    q_rows, columns = q.shape
    kv_rows = k.shape[0]
    assert q_rows % ROWS == 0
    assert kv_rows % ROWS == 0
    tokens, total = x.shape[0], q_rows + 2 * kv_rows
    out = torch.empty(tokens, total, device=x.device)
    _qkv_kernel[(triton.cdiv(total, ROWS), tokens)](
        x, q.q, q.scale, k.q, k.scale, v.q, v.scale, x if bias is None else bias, out,
        q_rows, kv_rows, columns, bias is not None, ROWS, GROUPS, num_warps=WARPS,
    )  # fmt: skip
    return out


def norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """RMSNorm of float32 (tokens, width)."""
    tokens, width = x.shape
    out = torch.empty_like(x)
    _norm_kernel[(tokens,)](x, weight, out, width, epsilon, triton.next_power_of_2(width))
    return out


def rotate(
    qkv: torch.Tensor,
    rope: tuple[torch.Tensor, torch.Tensor],
    norms: tuple[torch.Tensor, torch.Tensor] | None,
    cache: tuple[torch.Tensor, torch.Tensor],
    *,
    heads: int,
    position: int,
    epsilon: float,
) -> torch.Tensor:
    """Queries, rotated, (heads, tokens, head_dim); keys and values go to `cache` at `position`.

    `cache`: keys and values of this layer, each (kv_heads, kv_tokens, head_dim), contiguous.
    `rope`: cosines and sines (tokens, head_dim).
    """
    keys, values = cache
    kv_heads, kv_tokens, head_dim = keys.shape
    tokens = qkv.shape[0]
    queries = torch.empty(heads, tokens, head_dim, device=qkv.device)
    q_norm, k_norm = (qkv, qkv) if norms is None else norms
    _rotate_kernel[(heads + 2 * kv_heads, tokens)](
        qkv, rope[0], rope[1], q_norm, k_norm, queries, keys, values,
        heads, kv_heads, position, kv_tokens, epsilon,
        norms is not None, triton.next_power_of_2(head_dim // 2), head_dim, num_warps=1,
    )  # fmt: skip
    return queries


def attend(
    queries: torch.Tensor, cache: tuple[torch.Tensor, torch.Tensor], *, past: int
) -> torch.Tensor:
    """Causal attention over the cache: (heads, tokens, head_dim) → (tokens, heads × head_dim).

    head_dim is a power of two.
    """
    heads, tokens, head_dim = queries.shape
    kv_heads, kv_tokens, _ = cache[0].shape
    out = torch.empty(tokens, heads * head_dim, device=queries.device)
    _attend_kernel[(heads, tokens)](
        queries, cache[0], cache[1], out, heads, heads // kv_heads, past, kv_tokens,
        head_dim**-0.5, head_dim, 32, num_warps=2,
    )  # fmt: skip
    return out


assert GROUP == 32, "the kernels are written for groups of 32"
