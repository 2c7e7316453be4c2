"""Explain messages of torch's allocators and of libraries below torch."""

from __future__ import annotations

from memscope.analysis.diagnosis.balance import Balance, decide
from memscope.analysis.diagnosis.card import card_shares
from memscope.analysis.diagnosis.explanation import Explanation
from memscope.analysis.diagnosis.failed_request import FailedRequest
from memscope.analysis.diagnosis.log import xla
from memscope.analysis.diagnosis.log.server_advice import server_help, server_no_help
from memscope.analysis.diagnosis.torch_advice import advise
from memscope.analysis.diagnosis.words import write_why
from memscope.interop.oom_log.context import LogContext, XlaUser
from memscope.interop.oom_log.formats.torch_message import TorchKind, TorchMessage
from memscope.interop.oom_log.formats.xla import XlaKind, XlaLibrary, XlaMessage
from memscope.units import torch_size

_DISAGREEMENT_BYTES = 64 << 20


def explain(message: TorchMessage, context: LogContext) -> Explanation:
    """Explain one message. A bare CUDA error of a JAX program is explained as XLA's."""
    if message.kind is TorchKind.BARE and context.xla:
        return xla.explain(_as_xla(message, context), context)
    balance = Balance(message, _summary_pending_bytes(context))
    request = FailedRequest(message, balance, context)
    diagnosis = decide(balance)
    advice = advise(diagnosis, request)
    return Explanation(
        diagnosis=diagnosis,
        why=write_why(diagnosis, request),
        device=message.device,
        device_name=request.place.partition(" (")[0],
        sizes_bytes=message.sizes_bytes,
        shares=card_shares(balance),
        help=(*server_help(diagnosis, request), *advice.help),
        no_help=(*advice.no_help, *server_no_help(diagnosis, request)),
        unknown=advice.unknown,
        notes=_notes(request),
    )


def _as_xla(message: TorchMessage, context: LogContext) -> XlaMessage:
    """A library's error under JAX: XLA's own pool would have said RESOURCE_EXHAUSTED."""
    is_library = context.xla is XlaUser.JAX
    return XlaMessage(
        XlaKind.LIBRARY if is_library else XlaKind.ALLOCATION,
        message.backend,
        requested=message.requested,
        library=XlaLibrary.OTHER if is_library else None,
    )


def _summary_pending_bytes(context: LogContext) -> int:
    """Active less allocated bytes, from a memory summary in the log; 0 if there is none."""
    active = context.accounts.get("summary_active")
    allocated = context.accounts.get("summary_allocated")
    if active is None or allocated is None:
        return 0
    return max(active.bytes - allocated.bytes, 0)


def _notes(request: FailedRequest) -> tuple[str, ...]:
    notes = []
    message, balance = request.message, request.balance
    if message.has_unreadable_process:
        notes.append("The driver gave no number for this process; the one in the text is invalid.")
    if balance.is_own_process_renamed:
        notes.append(
            "The process listed under another pid is this program itself: it runs in a container."
        )
    if balance.private_free_bytes:
        free = torch_size(balance.private_free_bytes)
        notes.append(
            f"Torch counts {free} in private pools as allocated. That memory is free, but only "
            "inside those pools."
        )
    outside = balance.outside_bytes
    if outside is not None and outside < -_DISAGREEMENT_BYTES and message.free is not None:
        notes.append("The numbers add up to more than the card has.")
    return tuple(notes)
