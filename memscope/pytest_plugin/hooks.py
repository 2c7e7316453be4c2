"""Hooks around measured tests: record the body, judge it, report the result."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING

import pytest

from memscope.errors import MemscopeError
from memscope.pytest_plugin import report, result
from memscope.pytest_plugin.folder import RecordingFolder
from memscope.pytest_plugin.judgement import Judgement
from memscope.pytest_plugin.marks import MARKER, ItemSettings, read_markers
from memscope.pytest_plugin.measurement import Measurement, describe_fault
from memscope.pytest_plugin.session_baseline import SessionBaseline

if TYPE_CHECKING:
    from memscope.pytest_plugin.options import Settings

FIXTURE = "memscope_measurement"
_FIXTURE_HOOKS = "memscope-fixtures"
measurement_key: pytest.StashKey[Measurement] = pytest.StashKey()


class FixtureHooks:
    """Starts recording a test with ``fixtures=True`` at its first function-scoped fixture.

    pytest runs fixtures of a wider scope before.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> None:
        if fixturedef.scope == "function":
            measurement = request.node.stash.get(measurement_key, None)
            if measurement is not None and measurement.settings.fixtures:
                measurement.start()


class MeasuredTests:
    """Hooks around each test: marked, with the fixture, or any if every test has a limit."""

    def __init__(self, settings: Settings, plugins: pytest.PytestPluginManager) -> None:
        self._settings = settings
        self._plugins = plugins
        self._baseline = SessionBaseline(settings)
        self._folder = RecordingFolder(settings.output)

    def pytest_unconfigure(self) -> None:
        self._folder.close()

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        earlier = item.stash.get(measurement_key, None)
        if earlier is not None:  # this is a rerun
            earlier.discard()
            del item.stash[measurement_key]
            item.user_properties = result.without_ours(item.user_properties)
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
            returned = yield
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
        return returned

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
        if measurement.result is not None and (call.when == "call" or made.failed):
            made.memscope = measurement.result  # type: ignore[attr-defined]
        return made

    def _prepare(self, item: pytest.Item) -> Measurement:
        """Read the settings of a test. A mistake in a marker fails this test alone."""
        settings, fault, mistake = ItemSettings(is_marked=True), None, None
        try:
            settings = read_markers(item, self._settings)
            self._baseline.open(settings)
        except MemscopeError as error:
            mistake = f"memscope: {error}"
        except Exception as error:  # an error of ours
            fault = describe_fault(error)
        if mistake is not None:
            pytest.fail(mistake, pytrace=False)
        if settings.fixtures and not self._plugins.has_plugin(_FIXTURE_HOOKS):
            self._plugins.register(FixtureHooks(), _FIXTURE_HOOKS)
        return Measurement(item.nodeid, settings, self._folder, fault=fault)

    def _repeat(self, item: pytest.Item, measurement: Measurement) -> None:
        """Run the body again with the same fixtures, each time into its own recording."""
        for _ in range(measurement.settings.runs - 1):
            if _own_failure(item) is not None:
                return
            measurement.stop()
            measurement.start()
            item.runtest()

    def _leave(self, item: pytest.Item, measurement: Measurement, error: BaseException) -> None:
        """The body did not pass: pytest's outcome stands, and the recording is kept."""
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
        self._publish(item, measurement, Judgement(unmeasured="the test itself failed"))

    def _apply(self, item: pytest.Item, measurement: Measurement) -> None:
        """Fail or skip a test whose body passed, according to its limits."""
        compare = partial(self._baseline.expect, item.nodeid, measurement.settings)
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
        """Why a limit of the test's own marker could not be checked, or None."""
        if not measurement.settings.is_marked:
            return None
        if self._settings.new_baseline and not judgement.verdicts and not judgement.unmeasured:
            return None
        return report.describe_unjudged(judgement)

    def _publish(self, item: pytest.Item, measurement: Measurement, judgement: Judgement) -> None:
        measurement.result = result.make_result(measurement, judgement)
        item.user_properties += result.junit_properties(measurement.result)


def _own_failure(item: pytest.Item) -> BaseException | None:
    """The failure or skip of a unittest.TestCase: pytest keeps it and raises nothing."""
    kept = getattr(item, "_excinfo", None)
    return kept[0].value if kept else None


def _place_skip(item: pytest.Item, made: pytest.TestReport, reason: str) -> None:
    """Report the skip at the test's own line, not at the one in this file."""
    if made.skipped:
        path, line, _ = item.reportinfo()
        made.longrepr = (str(path), (line or 0) + 1, f"Skipped: {reason}")
