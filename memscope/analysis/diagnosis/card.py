"""The card of an out-of-memory message in parts that add up."""

from __future__ import annotations

from memscope.analysis.diagnosis.balance import Balance
from memscope.analysis.diagnosis.explanation import Share

# What rounding to 0.01 GiB may leave over between four numbers.
_ROUNDING_BYTES = 24 << 20


def card_shares(balance: Balance) -> tuple[Share, ...]:
    """Parts of the card, in bytes; none where the text gives too little.

    They add up to the card, or to what is allocated where that is more.
    """
    message = balance.message
    if message.kind == "mps":
        return _mps_shares(balance)
    if message.total is None or message.allocated is None:
        return _plain_shares(balance)
    total = message.total.bytes
    live = max(message.allocated.bytes - balance.private_free, 0)
    owner = "" if message.kind == "recorded" else "torch, "
    inside = [
        Share(f"{owner}allocated", live, "#"),
        Share(f"{owner}free in private pools", balance.private_free, "-"),
        Share(f"{owner}cached", balance.cached or 0, "="),
    ]
    free = message.free.bytes if message.free else 0
    rest = total - sum(share.bytes for share in inside) - free
    free_share = Share("free", max(free + min(rest, 0), 0), ".")
    if message.free is None:
        outside = [Share("free or outside torch", max(rest, 0), "?")]
    elif message.reserved is None:
        outside = [Share("driver's pool and outside torch", max(rest, 0), "x")]
    else:
        outside = _outside_shares(balance, max(rest, 0))
    return tuple(share for share in (*inside, *outside, free_share) if share.bytes)


def _outside_shares(balance: Balance, rest: int) -> list[Share]:
    """What lies outside torch, as far as it can be told apart."""
    own = balance.own_outside
    if own is None or balance.others is None:
        return [Share("outside torch", rest, "x")]
    own = min(own, rest)
    if rest - own < _ROUNDING_BYTES:
        own = rest
    return [
        Share("this program, outside torch", own, "x"),
        Share("other programs, driver", rest - own, "o"),
    ]


def _plain_shares(balance: Balance) -> tuple[Share, ...]:
    """Used and free, where no more is known."""
    message = balance.message
    if message.total is None or message.free is None or message.free.bytes > message.total.bytes:
        return ()
    used = message.total.bytes - message.free.bytes
    return tuple(
        share
        for share in (Share("used", used, "x"), Share("free", message.free.bytes, "."))
        if share.bytes
    )


def _mps_shares(balance: Balance) -> tuple[Share, ...]:
    message = balance.message
    if message.limit is None or message.allocated is None or message.reserved is None:
        return ()
    other = message.reserved.bytes - message.allocated.bytes
    left = max(message.limit.bytes - message.reserved.bytes, 0)
    parts = (
        Share("torch, allocated", message.allocated.bytes, "#"),
        Share("other allocations", max(other, 0), "x"),
        Share("left of what is allowed", left, "."),
    )
    return tuple(share for share in parts if share.bytes)
