"""A fault of memscope costs a measurement, never a test run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memscope.reader.recording import open_recording

MARKED = """
import pytest

@pytest.mark.memscope("driver.calls_per_step == 0")
def test_marked():
    pass

@pytest.mark.memscope("driver.calls_per_step == 0")
def test_failing():
    assert 1 == 2, "mine"

def test_unmarked():
    pass
"""


def break_down(*_: object, **__: object) -> None:
    raise RuntimeError("a fault")


@pytest.mark.parametrize(
    "broken",
    [
        "memscope.analysis.limits.limits.parse_limit",
        "memscope.launch.record.record",
        "memscope.recorder.recorder.Recorder.close",
        "memscope.reader.recording.Recording",
        "memscope.analysis.timeline.read.read_timeline",
        "memscope.analysis.metrics.measure.measure",
        "memscope.analysis.limits.limits.judge",
    ],
)
def test_fault_costs_the_measurement_alone(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setattr(broken, break_down)
    pytester.makepyfile(MARKED)
    result = pytester.runpytest("-rs")
    result.assert_outcomes(passed=1, skipped=1, failed=1)
    result.stdout.fnmatch_lines(["SKIPPED *memscope: no limit could be checked: *a fault*"])
    result.stdout.fnmatch_lines(["*AssertionError: mine*"])


def test_unwritable_folder_skips(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMSCOPE_DIR", str(pytester.path / "absent"))
    pytester.makepyfile(MARKED)
    result = pytester.runpytest("-rs")
    result.assert_outcomes(passed=1, skipped=1, failed=1)
    result.stdout.fnmatch_lines(["SKIPPED *no limit could be checked*absent*"])


def test_runs_without_torch(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import sys; sys.modules['torch'] = None")
    pytester.makepyfile(MARKED)
    result = pytester.runpytest_subprocess("-rs")
    result.assert_outcomes(passed=1, skipped=1, failed=1)
    result.stdout.fnmatch_lines(["SKIPPED *not measured, no driver call is recorded"])


@pytest.mark.usefixtures("installed_plugins")
def test_idle_plugin_imports_only_pytest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\n"
        "def test_it():\n"
        "    heavy = {'torch', 'numpy', 'pyarrow', 'textual', 'plotly', "
        "'memscope.recorder.recorder'}\n"
        "    assert not heavy & set(sys.modules)\n"
        "    assert 'memscope.pytest_plugin.plugin' in sys.modules\n"
    )
    pytester.runpytest_subprocess("-p", "no:asyncio").assert_outcomes(passed=1)


def test_idle_plugin_has_no_hook_around_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "def test_it(pytestconfig):\n"
        "    plugins = pytestconfig.pluginmanager\n"
        "    mine = plugins.get_plugin('memscope.pytest_plugin.plugin')\n"
        "    assert mine and not plugins.has_plugin('memscope-tests')\n"
        "    assert not any('runtest' in each.name for each in plugins.get_hookcallers(mine))\n"
    )
    pytester.runpytest().assert_outcomes(passed=1)


def test_interrupt_ends_run_and_recording(pytester: pytest.Pytester, tmp_path: Path) -> None:
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.memscope('driver.calls_per_step == 0')\n"
        "def test_it():\n    raise KeyboardInterrupt\n"
    )
    result = pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    (path,) = tmp_path.rglob("*.mscope")
    with open_recording(path) as recording:
        assert str(recording.state).startswith("complete")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_fork_in_a_test_leaves_its_verdict_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import os\n"
        "import memscope\n"
        "import pytest\n"
        "from memscope.events import Kind\n"
        "@pytest.mark.memscope('driver.calls_per_step == 0')\n"
        "def test_it():\n"
        "    recorder = memscope.active_recorder()\n"
        "    if (child := os.fork()) == 0:\n"
        "        recorder.emit(Kind.DEVICE_MALLOC, 1, bytes=1)\n"
        "        os._exit(0)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "    recorder.emit(Kind.DEVICE_MALLOC, bytes=1)\n"
        "    for step in range(3):\n"
        "        recorder.emit(Kind.STEP, step, duration_ns=1)\n"
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
