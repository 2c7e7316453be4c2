"""Compare two recordings: their settings and all metrics."""

from __future__ import annotations

from memscope.analysis.comparison.difference import Change, Compared, Difference
from memscope.analysis.comparison.run_settings import compare_settings
from memscope.analysis.metrics.metric import Metric
from memscope.analysis.summary.summary import Summary


def diff_recordings(before: Summary, after: Summary) -> Difference:
    """The second recording's metrics minus the first's, the largest relative change first.

    Metrics without a value in both are not included.
    """
    names = dict.fromkeys([*after.metrics, *before.metrics])
    changes = [_change(name, before.metrics.get(name), after.metrics.get(name)) for name in names]
    changes = [each for each in changes if each.before is not None or each.after is not None]
    return Difference(
        kind=Compared.RECORDINGS,
        metrics=tuple(sorted(changes, key=lambda change: -abs(change.relative))),
        holders={},
        is_partial=before.state.is_partial or after.state.is_partial,
        settings=compare_settings(before, after),
    )


def _change(name: str, before: Metric | None, after: Metric | None) -> Change:
    unit = (after or before or Metric(name, None, "")).unit
    missing = next((each for each in (before, after) if each is None or each.value is None), None)
    reason = None
    if before is None or after is None or missing is not None:
        side = "the first" if before is None or before.value is None else "the second"
        reason = (missing.reason if missing else None) or f"{side} recording does not have it"
    elif before.unit != after.unit:
        return Change(name, None, after.value, unit, f"in {before.unit} in the first recording")
    return Change(
        name, before.value if before else None, after.value if after else None, unit, reason
    )
