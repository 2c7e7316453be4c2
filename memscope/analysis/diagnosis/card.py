"""The card, split into parts that add up, from the sizes in an out-of-memory message."""

from __future__ import annotations

from memscope.analysis.diagnosis.balance import Balance
from memscope.analysis.diagnosis.explanation import Share, ShareKind
from memscope.interop.oom_log.formats.torch_message import TorchKind

# Four numbers rounded to 0.01 GiB may differ from their sum by this much.
_ROUNDING_BYTES = 24 << 20


def card_shares(balance: Balance) -> tuple[Share, ...]:
    """The parts of the card; () if the text gives too little.

    They add up to the card's size, or to what is allocated if that is more.
    """
    message = balance.message
    if message.kind is TorchKind.MPS:
        return _mps_shares(balance)
    if message.total is None or message.allocated is None:
        return _plain_shares(balance)
    total = message.total.bytes
    live = max(message.allocated.bytes - balance.private_free_bytes, 0)
    owner = "" if message.kind is TorchKind.RECORDED else "torch, "
    inside = [
        Share(f"{owner}allocated", live, ShareKind.ALLOCATED),
        Share(f"{owner}free in private pools", balance.private_free_bytes, ShareKind.PRIVATE),
        Share(f"{owner}cached", balance.cached_bytes or 0, ShareKind.CACHED),
    ]
    free = message.free.bytes if message.free else 0
    rest = total - sum(share.bytes for share in inside) - free
    free_share = Share("free", max(free + min(rest, 0), 0), ShareKind.FREE)
    if message.free is None:
        outside = [Share("free or outside torch", max(rest, 0), ShareKind.UNCERTAIN)]
    elif message.reserved is None:
        outside = [Share("driver's pool and outside torch", max(rest, 0), ShareKind.OUTSIDE)]
    else:
        outside = _outside_shares(balance, max(rest, 0))
    return tuple(share for share in (*inside, *outside, free_share) if share.bytes)


def _outside_shares(balance: Balance, rest: int) -> list[Share]:
    """Memory outside torch: this program's and that of others, if they can be told apart."""
    own = balance.own_outside_bytes
    if own is None or balance.others_bytes is None:
        return [Share("outside torch", rest, ShareKind.OUTSIDE)]
    own = min(own, rest)
    if rest - own < _ROUNDING_BYTES:
        own = rest
    return [
        Share("this program, outside torch", own, ShareKind.OUTSIDE),
        Share("other programs, driver", rest - own, ShareKind.OTHERS),
    ]


def _plain_shares(balance: Balance) -> tuple[Share, ...]:
    """Used and free, if no more is known."""
    message = balance.message
    if message.total is None or message.free is None or message.free.bytes > message.total.bytes:
        return ()
    used = message.total.bytes - message.free.bytes
    shares = (
        Share("used", used, ShareKind.OUTSIDE),
        Share("free", message.free.bytes, ShareKind.FREE),
    )
    return tuple(share for share in shares if share.bytes)


def _mps_shares(balance: Balance) -> tuple[Share, ...]:
    message = balance.message
    if message.limit is None or message.allocated is None or message.reserved is None:
        return ()
    other = message.reserved.bytes - message.allocated.bytes
    left = max(message.limit.bytes - message.reserved.bytes, 0)
    parts = (
        Share("torch, allocated", message.allocated.bytes, ShareKind.ALLOCATED),
        Share("other allocations", max(other, 0), ShareKind.OUTSIDE),
        Share("left of what is allowed", left, ShareKind.FREE),
    )
    return tuple(share for share in parts if share.bytes)
