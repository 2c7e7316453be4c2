"""What a session leaves behind: memscope-results.json, a baseline, and a short table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from memscope.errors import MemscopeError
from memscope.pytest_plugin.result import actual
from memscope.text import clean

if TYPE_CHECKING:
    from memscope.analysis.limits.limits import Limit
    from memscope.analysis.metrics.metric import Metric
    from memscope.pytest_plugin.options import Settings

RESULTS = "memscope-results.json"
MAX_ROWS = 20


class SessionResults:
    """Collects the results of all tests, also those of xdist workers, until the session ends."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._results: dict[str, dict[str, Any]] = {}  # by test
        self._notes: list[str] = []
        self._lost: list[str] = []
        self._problems = list(settings.problems)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        result = getattr(report, "memscope", None)
        if isinstance(result, dict):  # a rerun replaces the earlier result
            self._results[report.nodeid] = result | {"outcome": report.outcome}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        for write in (self._write_baseline, self._write_results):
            try:
                write()
            except (MemscopeError, OSError, ValueError) as error:
                self._problems.append(str(error))
        if self._settings.strict:
            self._problems += self._never_measured()
        if self._problems and session.exitstatus in (pytest.ExitCode.OK, 5):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        lines = [f"error: {problem}" for problem in self._problems]
        if terminalreporter.verbosity >= 0:
            results = list(self._results.values())
            lines += [*_table_lines(results), *_shared_lines(self._settings.limits, results)]
            lines += self._notes
        lines += [f"removed from the baseline: {words}" for words in self._lost]
        if lines:
            terminalreporter.section("memscope")
            for line in lines:
                terminalreporter.line(line, red=line.startswith(("error", "  fail")))

    def _write_results(self) -> None:
        folder = self._settings.output
        if folder is None:
            return
        from memscope.atomic_file import atomic_write

        result = {
            "limits": [limit.text for limit in self._settings.limits],
            "is_strict": self._settings.strict,
            "problems": self._problems,
            "tests": [self._results[test] for test in sorted(self._results)],
        }
        with atomic_write(folder / RESULTS, force=True) as unfinished:
            text = json.dumps(result, indent=1, allow_nan=False)
            unfinished.write_text(f"{text}\n", encoding="utf-8")
        self._notes.append(f"results: {folder / RESULTS}")

    def _write_baseline(self) -> None:
        """Write the metrics of marked tests that passed; a failed test is no example to others."""
        path = self._settings.new_baseline
        if path is None:
            return
        from memscope.analysis.limits.baseline import write_baseline
        from memscope.analysis.limits.machine_class import MachineClass

        passed = [each for each in self._results.values() if _is_example(each)]
        if not passed:
            self._problems.append(f"{path} was not written: no marked test passed.")
            return
        machine = max((each["machine"] for each in passed), key=_weight)
        sections = {each["test"]: _metrics(each) for each in passed}
        limits = [limit for each in passed for limit in _limits(each)]
        rewrite = write_baseline(path, sections, MachineClass(**machine), limits)
        tests = "1 test" if len(passed) == 1 else f"{len(passed)} tests"
        replaced = f", {rewrite.sections} of them replaced" if rewrite.sections else ""
        self._notes.append(f"baseline: {tests} written to {path}{replaced}")
        self._lost += [each.words(with_section=True) for each in rewrite.lost]

    def _never_measured(self) -> list[str]:
        """A problem for each limit of every test that no test measured."""
        judged = {
            limit["limit"]
            for each in self._results.values()
            for limit in each["limits"]
            if limit["value"] is not None
        }
        return [
            f"{limit.text}: no test measured it."
            for limit in self._settings.limits
            if limit.comparison and limit.text not in judged
        ]


def _is_example(result: dict[str, Any]) -> bool:
    is_passed = result["outcome"] == "passed" and result["machine"] is not None
    return is_passed and result["is_marked"]


def _limits(result: dict[str, Any]) -> tuple[Limit, ...]:
    from memscope.analysis.limits.limits import parse_limits

    return parse_limits(limit["limit"] for limit in result["limits"])


def _metrics(result: dict[str, Any]) -> dict[str, Metric]:
    """The metrics of a test. One of the whole process counts only if a limit names it."""
    from memscope.analysis.metrics.metric import Metric
    from memscope.analysis.metrics.table import find_definition

    named = {limit.metric for limit in _limits(result)}
    metrics = {}
    for name, metric in result["metrics"].items():
        definition = find_definition(name)
        if name in named or definition is None or not definition.is_of_process:
            metrics[name] = Metric(name, metric["value"], metric["unit"])
    return metrics


def _weight(machine: dict[str, Any]) -> int:
    """Rank of a machine: a test without a device runs anywhere, so that the others decide."""
    return ("none", "host", "cuda").index(machine["kind"])


def _table_lines(results: Sequence[dict[str, Any]]) -> list[str]:
    """The table at the end: each limit of a marked test and each broken one, worst first."""
    from memscope.analysis.limits.limits import Outcome
    from memscope.cli.text.columns import align

    rows = [
        (limit["verdict"], result["test"], limit["limit"], actual(limit))
        for result in results
        for limit in result["limits"]
        if result["is_marked"] or limit["verdict"] == Outcome.FAIL
    ]
    rank = {verdict: number for number, verdict in enumerate(_worst_first())}
    rows.sort(key=lambda row: (rank[row[0]], row[1]))
    shown = [tuple(clean(cell, 70) for cell in row) for row in rows[:MAX_ROWS]]
    left = Counter(row[0] for row in rows[MAX_ROWS:])
    more = ", ".join(f"{count} {verdict}" for verdict, count in left.items())
    return align(shown) + ([f"  and {more}"] if more else []) if shown else []


def _shared_lines(limits: Sequence[Limit], results: Sequence[dict[str, Any]]) -> list[str]:
    """One line for each limit of every test: how many tests got which verdict."""
    lines = []
    for limit in limits:
        tests = Counter(
            each["verdict"]
            for result in results
            for each in result["limits"]
            if each["limit"] == limit.text
        )
        counts = ", ".join(f"{tests[word]} {word}" for word in _worst_first() if tests[word])
        lines.append(f"  every test: {clean(limit.text, 70)}: {counts or 'checked in no test'}")
    return lines


def _worst_first() -> tuple[str, ...]:
    from memscope.analysis.limits.limits import Outcome

    return (
        Outcome.FAIL,
        Outcome.NOT_MEASURED,
        Outcome.WARN,
        Outcome.NOT_APPLICABLE,
        Outcome.PASS,
    )
