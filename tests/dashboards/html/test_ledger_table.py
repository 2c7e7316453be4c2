"""The ledger of the report: every byte that the summary has, and every reason."""

from __future__ import annotations

from memscope.analysis.summary.summary import summarize
from memscope_dashboards.html.ledger_table import render_ledgers
from tests.memscope.analysis.build import fact, fold, state
from tests.memscope.analysis.ledger.programs import program


def test_lines_and_reasons_are_those_of_the_summary():
    summary = summarize(fold(program()), state("cut"))
    page = render_ledgers(summary)
    assert "(partial recording)" in page
    for _, line in summary.ledgers[0].lines:
        assert line.words.replace("'", "&#x27;") in page
    assert "CUPTI was off" in page
    assert page.count("<tr>") == sum(line.bytes is not None for _, line in summary.ledgers[0].lines)


def test_a_name_from_a_stranger_is_escaped():
    hostile = fact("nvml.others.0", {"7": {"bytes": 1 << 30, "command": "<script>alert(1)"}})
    page = render_ledgers(summarize(fold([*program(), hostile]), state()))
    assert "<script>" not in page


def test_nothing_known_is_no_section():
    assert render_ledgers(summarize(fold([]), state())) == ""
