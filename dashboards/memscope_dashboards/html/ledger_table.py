"""The ledger as a table with one bar per line. It works without JavaScript."""

from __future__ import annotations

from collections.abc import Iterator

from memscope.analysis.ledger.ledger import Ledger
from memscope.analysis.ledger.lines import LedgerLine
from memscope.analysis.summary.summary import Summary
from memscope.units import format_bytes
from memscope_dashboards.html.markup import escape


def render_ledgers(summary: Summary) -> str:
    """One section with the ledgers of all devices; empty text if there is no ledger."""
    note = " (partial recording)" if summary.state.is_partial else ""
    tables = "".join(map(_ledger, summary.ledgers))
    if not tables:
        return ""
    return f'<section id="ledger"><h2>Where the memory is{note}</h2>{tables}</section>'


def _ledger(ledger: Ledger) -> str:
    index = f" {ledger.device}" if ledger.device >= 0 else ""
    heading = f"Device{index}, {ledger.name}: at {ledger.at_ns / 1e9:.1f} s, by {ledger.source}"
    whole = max(ledger.total.bytes or 0, 1)
    known = "".join(_row(depth, line, whole) for depth, line in ledger.lines if _is_shown(line))
    return (
        f"<h3>{escape(heading)}</h3>"
        f'<table class="ledger"><tbody>{known}</tbody></table>{_absent(ledger)}'
    )


def _is_shown(line: LedgerLine) -> bool:
    return line.bytes is not None and bool(line.bytes or not line.is_rest)


def _row(depth: int, line: LedgerLine, whole: int) -> str:
    size = line.bytes or 0
    share = min(max(size / whole, 0.0), 1.0)
    note = f"{line.coverage}: {line.reason}" if line.reason else ""
    return (
        f'<tr><th style="padding-left: {1.2 * depth:.1f}em">{escape(line.words)}</th>'
        f'<td class="value">{escape(format_bytes(size))}</td>'
        f'<td class="bar"><span style="width: {share:.2%}"></span></td>'
        f'<td class="definition">{escape(note)}</td></tr>'
    )


def _absent(ledger: Ledger) -> str:
    items = "".join(_reasons(ledger))
    if not items:
        return ""
    return (
        f"<details><summary>What could not be measured, and why</summary><ul>{items}</ul></details>"
    )


def _reasons(ledger: Ledger) -> Iterator[str]:
    for _, line in ledger.lines:
        if line.bytes is None:
            yield f"<li>{escape(line.words)}: {escape(line.reason)}</li>"
