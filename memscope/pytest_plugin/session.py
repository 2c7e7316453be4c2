"""What a whole session came to: one artefact, one baseline, one short table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from memscope.errors import MemscopeError
from memscope.pytest_plugin.table import shared_lines, table_lines

if TYPE_CHECKING:
    from memscope.analysis.limits.limits import Limit
    from memscope.analysis.metrics.metric import Metric
    from memscope.pytest_plugin.options import Settings

RESULTS = "memscope-results.json"


class SessionResults:
    """Collects what tests came to, those of xdist's workers as well, where the session ends."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._outcomes: dict[str, dict[str, Any]] = {}
        self._notes: list[str] = []
        self._lost: list[str] = []
        self._problems = list(settings.problems)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = getattr(report, "memscope", None)
        if isinstance(found, dict):  # a rerun replaces what came before
            self._outcomes[report.nodeid] = found | {"outcome": report.outcome}

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
            outcomes = list(self._outcomes.values())
            lines += [*table_lines(outcomes), *shared_lines(self._settings.limits, outcomes)]
            lines += self._notes
        lines += [f"no longer in the baseline: {words}" for words in self._lost]
        if lines:
            terminalreporter.section("memscope")
            for line in lines:
                terminalreporter.line(line, red=line.startswith(("error", "  fail")))

    def _write_results(self) -> None:
        folder = self._settings.output
        if folder is None:
            return
        from memscope.atomic_file import appearing

        result = {
            "limits": [limit.text for limit in self._settings.limits],
            "is_strict": self._settings.strict,
            "problems": self._problems,
            "tests": [self._outcomes[test] for test in sorted(self._outcomes)],
        }
        with appearing(folder / RESULTS, force=True) as unfinished:
            text = json.dumps(result, indent=1, allow_nan=False)
            unfinished.write_text(f"{text}\n", encoding="utf-8")
        self._notes.append(f"results: {folder / RESULTS}")

    def _write_baseline(self) -> None:
        """The metrics of marked tests that passed; a failed one is no example to others."""
        path = self._settings.new_baseline
        if path is None:
            return
        from memscope.analysis.limits.baseline import write_baseline
        from memscope.analysis.limits.machine_class import MachineClass

        passed = [each for each in self._outcomes.values() if _is_example(each)]
        if not passed:
            self._problems.append(f"{path} is not written: no marked test has passed.")
            return
        machine = max((each["machine"] for each in passed), key=_weight)
        sections = {each["test"]: _metrics(each) for each in passed}
        limits = [limit for each in passed for limit in _limits(each)]
        rewrite = write_baseline(path, sections, MachineClass(**machine), limits)
        tests = "1 test" if len(passed) == 1 else f"{len(passed)} tests"
        anew = f", {rewrite.sections} of them anew" if rewrite.sections else ""
        self._notes.append(f"baseline: {tests} written to {path}{anew}")
        self._lost += [each.words(with_section=True) for each in rewrite.lost]

    def _never_measured(self) -> list[str]:
        """Limits of every test that no test could be judged by."""
        judged = {
            limit["limit"]
            for each in self._outcomes.values()
            for limit in each["limits"]
            if limit["value"] is not None
        }
        return [
            f"{limit.text}: no test measured it."
            for limit in self._settings.limits
            if limit.comparison and limit.text not in judged
        ]


def _is_example(outcome: dict[str, Any]) -> bool:
    is_passed = outcome["outcome"] == "passed" and outcome["machine"] is not None
    return is_passed and outcome["is_marked"]


def _limits(outcome: dict[str, Any]) -> tuple[Limit, ...]:
    from memscope.analysis.limits.limits import parse_limits

    return parse_limits(limit["limit"] for limit in outcome["limits"])


def _metrics(outcome: dict[str, Any]) -> dict[str, Metric]:
    """What a test came to. Of what the process did before it, only what a limit of it names."""
    from memscope.analysis.metrics.metric import Metric
    from memscope.analysis.metrics.table import find_definition

    named = {limit.metric for limit in _limits(outcome)}
    found = {}
    for name, metric in outcome["metrics"].items():
        row = find_definition(name)
        if name in named or row is None or not row.is_of_process:
            found[name] = Metric(name, metric["value"], metric["unit"])
    return found


def _weight(machine: dict[str, Any]) -> int:
    """A test without a device runs on any machine: the others say which it was."""
    return ("none", "host", "cuda").index(machine["kind"])
