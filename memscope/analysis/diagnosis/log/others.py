"""Processes of a job that ran out for another reason than the one explained: what helps them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memscope.analysis.diagnosis.balance import Balance
from memscope.analysis.diagnosis.explanation import Advice, Explanation
from memscope.analysis.diagnosis.log.incident import Victim
from memscope.analysis.diagnosis.situation import torch_size
from memscope.interop.oom_log.formats.torch import OomMessage

_NAMES = 4


def help_others(victims: Sequence[Victim], explained: Sequence[Explanation]) -> Iterator[Advice]:
    """One piece of advice for each diagnosis that the first one's help does not answer."""
    helped = {advice.setting for advice in explained[0].help}
    groups: dict[str, list[tuple[Victim, Explanation]]] = {}
    for victim, each in zip(victims[1:], explained[1:], strict=True):
        is_helped = not each.help or each.help[0].setting in helped
        if each.diagnosis not in (None, "unknown", explained[0].diagnosis) and not is_helped:
            groups.setdefault(each.diagnosis or "", []).append((victim, each))
    for diagnosis, group in groups.items():
        yield _advise(diagnosis, group, helped)


def _advise(
    diagnosis: str, group: Sequence[tuple[Victim, Explanation]], helped: set[str]
) -> Advice:
    names = [victim.name or f"line {victim.line:,}" for victim, _ in group]
    shown = ", ".join(names[:_NAMES])
    if len(names) > _NAMES:
        shown += f" and {len(names) - _NAMES:,} more"
    most = max(_missing(victim) for victim, _ in group)
    lacks = f", {'up to ' if len(names) > 1 else ''}{torch_size(most)} missing" if most else ""
    is_apart = all(each.setting not in helped for _, other in group for each in other.help)
    rest = "nothing above helps" if is_apart else "this first"
    advice = group[0][1].help[0]
    return Advice(
        f"{shown}: {advice.setting}", f"{diagnosis.replace('_', ' ')}{lacks}: {rest}", most or None
    )


def _missing(victim: Victim) -> int:
    """Bytes that it lacked, 0 where its message does not say."""
    message = victim.found.message
    return (Balance(message).missing or 0) if isinstance(message, OomMessage) else 0
