"""Hooks of a session in which some test is measured: record, judge, say what came of it."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING

import pytest

from memscope.errors import MemscopeError
from memscope.pytest_plugin import outcome, report
from memscope.pytest_plugin.comparison import Comparison
from memscope.pytest_plugin.folder import RecordingFolder
from memscope.pytest_plugin.judgement import Judgement
from memscope.pytest_plugin.marks import MARKER, Asked, read_markers
from memscope.pytest_plugin.measurement import Measurement, describe_fault

if TYPE_CHECKING:
    from memscope.pytest_plugin.options import Settings

FIXTURE = "memscope_measurement"
_FIXTURE_HOOKS = "memscope-fixtures"
measurement_key: pytest.StashKey[Measurement] = pytest.StashKey()


class FixtureHooks:
    """For tests with ``fixtures=True``: recording begins with their first own fixture.

    pytest makes those of a wider scope before.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> None:
        if fixturedef.scope == "function":
            measurement = request.node.stash.get(measurement_key, None)
            if measurement is not None and measurement.asked.fixtures:
                measurement.start()


class MeasuredTests:
    """Hooks around each test: a marked one, one with the fixture, or all of them."""

    def __init__(self, settings: Settings, plugins: pytest.PytestPluginManager) -> None:
        self._settings = settings
        self._plugins = plugins
        self._comparison = Comparison(settings)
        self._folder = RecordingFolder(settings.output)

    def pytest_unconfigure(self) -> None:
        self._folder.close()

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        earlier = item.stash.get(measurement_key, None)
        if earlier is not None:  # this is a rerun
            earlier.discard()
            del item.stash[measurement_key]
            item.user_properties = outcome.without_ours(item.user_properties)
        is_marked = item.get_closest_marker(MARKER) is not None
        has_fixture = FIXTURE in getattr(item, "fixturenames", ())
        if is_marked or has_fixture or self._settings.limits:
            item.stash[measurement_key] = self._prepare(item)

    @pytest.hookimpl(wrapper=True, trylast=True)  # innermost: others' work is not measured
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        measurement = item.stash.get(measurement_key, None)
        if measurement is None:
            return (yield)
        measurement.start()
        try:
            result = yield
            self._repeat(item, measurement)
        except BaseException as error:
            self._leave(item, measurement, error)
            raise
        own = _own_failure(item)
        if own is not None:
            self._leave(item, measurement, own)
        else:
            measurement.stop()
            self._apply(item, measurement)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        measurement = item.stash.get(measurement_key, None)
        if measurement is not None and measurement.is_running and call.excinfo is not None:
            self._leave(item, measurement, call.excinfo.value)  # a fixture failed
        made = yield
        if measurement is None:
            return made
        if measurement.skip_reason and call.when == "call":
            _place_skip(item, made, measurement.skip_reason)
        if measurement.outcome is not None and (call.when == "call" or made.failed):
            made.memscope = measurement.outcome  # type: ignore[attr-defined]
        return made

    def _prepare(self, item: pytest.Item) -> Measurement:
        """What is asked of a test. A mistake in a marker fails this test alone."""
        asked, fault, mistake = Asked(is_marked=True), None, None
        try:
            asked = read_markers(item, self._settings)
            self._comparison.open(asked)
        except MemscopeError as error:
            mistake = f"memscope: {error}"
        except Exception as error:  # a fault of ours
            fault = describe_fault(error)
        if mistake is not None:
            pytest.fail(mistake, pytrace=False)
        if asked.fixtures and not self._plugins.has_plugin(_FIXTURE_HOOKS):
            self._plugins.register(FixtureHooks(), _FIXTURE_HOOKS)
        return Measurement(item.nodeid, asked, self._folder, fault=fault)

    def _repeat(self, item: pytest.Item, measurement: Measurement) -> None:
        """Run the body again, with the same fixtures, each time into a recording of its own."""
        for _ in range(measurement.asked.runs - 1):
            if _own_failure(item) is not None:
                return
            measurement.stop()
            measurement.start()
            item.runtest()

    def _leave(self, item: pytest.Item, measurement: Measurement, error: BaseException) -> None:
        """The body did not pass: its own outcome stands, and its recording helps to see why."""
        measurement.stop(is_last=True)
        if isinstance(error, pytest.skip.Exception) or not measurement.paths:
            measurement.discard()
            return
        path = measurement.paths[-1]
        measurement.keep_only(path)
        lines = [report.describe_kept(path)]
        if report.is_memory_error(error):
            lines = [*report.describe_memory_error(path, error), *lines]
        item.add_report_section("call", MARKER, "\n".join(lines))
        self._publish(item, measurement, Judgement(unmeasured="the test failed by itself"))

    def _apply(self, item: pytest.Item, measurement: Measurement) -> None:
        """Fail or skip a test whose body has passed, by what was measured."""
        compare = partial(self._comparison.expect, item.nodeid, measurement.asked)
        judgement = measurement.judge(compare)
        for line in judgement.warnings:
            item.warn(pytest.PytestWarning(f"memscope: {line}"))
        if judgement.broken:
            path = measurement.paths[judgement.typical_run(judgement.broken[0].metric)]
            measurement.keep_only(path)
            self._publish(item, measurement, judgement)
            pytest.fail(report.describe_broken(judgement, path), pytrace=False)
        for verdict in judgement.near:
            line = report.describe_verdict(judgement, verdict)
            item.warn(pytest.PytestWarning(f"{line}: {verdict.advice}"))
        reason = self._unmeasured(measurement, judgement)
        if reason and self._settings.strict and measurement.paths:
            path = measurement.paths[-1]
            measurement.keep_only(path)
            reason = f"{reason}\n{report.describe_kept(path)}"
        else:
            measurement.discard()
        self._publish(item, measurement, judgement)
        if reason and self._settings.strict:
            pytest.fail(reason, pytrace=False)
        if reason:
            measurement.skip_reason = reason
            pytest.skip(reason)

    def _unmeasured(self, measurement: Measurement, judgement: Judgement) -> str | None:
        """Why a limit that this test itself names could not be judged."""
        if not measurement.asked.is_marked:
            return None
        if self._settings.new_baseline and not judgement.verdicts and not judgement.unmeasured:
            return None
        return report.describe_unjudged(judgement)

    def _publish(self, item: pytest.Item, measurement: Measurement, judgement: Judgement) -> None:
        measurement.outcome = outcome.make_outcome(measurement, judgement)
        item.user_properties += outcome.junit_properties(measurement.outcome)


def _own_failure(item: pytest.Item) -> BaseException | None:
    """What a unittest.TestCase failed or was skipped with: pytest keeps it, and raises nothing."""
    kept = getattr(item, "_excinfo", None)
    return kept[0].value if kept else None


def _place_skip(item: pytest.Item, made: pytest.TestReport, reason: str) -> None:
    """Give the test's place, not that of the skip in this file."""
    if made.skipped:
        path, line, _ = item.reportinfo()
        made.longrepr = (str(path), (line or 0) + 1, f"Skipped: {reason}")
