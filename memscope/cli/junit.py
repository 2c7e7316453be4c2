"""Verdicts as JUnit XML for CI: a test suite for each recording, a test case for each limit."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from memscope.analysis.limits.limits import Outcome, Verdict
from memscope.analysis.limits.value_parsing import write_value
from memscope.atomic_file import atomic_write, check_free
from memscope.cli.check_runs import Checked, CheckedRun
from memscope.errors import MemscopeError
from memscope.text import clean

TITLE = "memscope check"
_BEGIN = f"<?xml version='1.0' encoding='utf-8'?>\n<testsuites name=\"{TITLE}\"".encode()


def write_junit(path: Path, runs: Sequence[CheckedRun], *, force: bool) -> None:
    """Write the file in one step. Raises MemscopeError."""
    root = junit_tree(runs)
    ET.indent(root)
    with atomic_write(path, force=force or is_verdicts(path)) as unfinished:
        ET.ElementTree(root).write(unfinished, encoding="utf-8", xml_declaration=True)


def check_junit(path: Path, *, force: bool) -> None:
    """Raises MemscopeError if ``path`` cannot be written. An earlier result may be replaced."""
    check_free(path, force=True)
    if path.is_file() and not (force or is_verdicts(path)):
        raise MemscopeError(
            f"{path} exists and was not written by `{TITLE}`.",
            "Name another file, or overwrite it with --force.",
        )


def is_verdicts(path: Path) -> bool:
    """Whether the file begins like one that `memscope check` wrote."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(_BEGIN)) == _BEGIN
    except OSError:
        return False


def junit_tree(runs: Sequence[CheckedRun]) -> ET.Element:
    """The element ``testsuites``. A verdict that makes the exit code 1 is a failure or an error."""
    root = ET.Element("testsuites", name=TITLE)
    for checked_run in runs:
        for checked in checked_run.processes:
            root.append(_suite(checked, checked_run.breaking(checked)))
    for key in ("tests", "failures", "errors"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    return root


def _suite(checked: Checked, breaking: Sequence[Verdict]) -> ET.Element:
    header, verdicts = checked.summary.header, checked.summary.verdicts
    started = datetime.fromtimestamp(header.started_at_ns / 1e9, UTC)
    suite = ET.Element(
        "testsuite",
        name=clean(checked.title, 400),
        hostname=clean(header.host, 200),
        timestamp=f"{started:%Y-%m-%dT%H:%M:%S}",
        time="0",
    )
    properties = ET.SubElement(suite, "properties")
    for metric in checked.summary.metrics.values():
        if metric.value is not None:
            value = clean(write_value(metric.value, metric.unit))
            ET.SubElement(properties, "property", name=clean(metric.name, 200), value=value)
    suite.extend(_case(verdict, checked, verdict in breaking) for verdict in verdicts)
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("tests", str(len(verdicts)))
    return suite


def _case(verdict: Verdict, checked: Checked, is_breaking: bool) -> ET.Element:
    area = verdict.metric.partition(".")[0]
    name, sentence = clean(verdict.limit, 200), clean(verdict.sentence, 400)
    case = ET.Element("testcase", classname=f"memscope.{clean(area, 60)}", name=name, time="0")
    if is_breaking:
        tag = "failure" if verdict.verdict == Outcome.FAIL else "error"
        problem = ET.SubElement(case, tag, message=sentence, type=verdict.verdict)
        lines = [sentence, verdict.advice, f"recording: {clean(checked.path, 400)}"]
        problem.text = "\n".join(line for line in lines if line)
    elif verdict.verdict == Outcome.FAIL:
        ET.SubElement(case, "skipped", message=f"default limit, does not decide: {sentence}")
    elif verdict.value is None:
        ET.SubElement(case, "skipped", message=sentence)
    else:
        shown = [sentence, verdict.reason, verdict.advice]
        ET.SubElement(case, "system-out").text = "\n".join(clean(line) for line in shown if line)
    return case
