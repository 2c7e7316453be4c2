"""`memscope check --junit`: what CI servers read."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from memscope.events import Kind
from tests.memscope.analysis.build import event, fact
from tests.memscope.cli.recordings import write_recording
from tests.memscope.cli.verb_run import Run

# What the schema of the Jenkins xUnit plugin (junit-10.xsd, as Ant's) allows: element → its
# attributes (required first) and children, in order.
SCHEMA = {
    "testsuites": ([], ["name", "tests", "failures", "errors", "time"], ["testsuite"]),
    "testsuite": (
        ["name", "tests"],
        ["failures", "errors", "skipped", "time", "timestamp", "hostname"],
        ["properties", "testcase"],
    ),
    "properties": ([], [], ["property"]),
    "property": (["name", "value"], [], []),
    "testcase": (
        ["name", "classname", "time"],
        [],
        ["skipped", "error", "failure", "system-out"],
    ),
    "skipped": ([], ["message"], []),
    "error": ([], ["message", "type"], []),
    "failure": ([], ["message", "type"], []),
    "system-out": ([], [], []),
}


def check_schema(element: ET.Element) -> None:
    required, optional, children = SCHEMA[element.tag]
    assert set(required) <= element.attrib.keys(), element.tag
    assert element.attrib.keys() <= {*required, *optional}, element.tag
    places = [children.index(child.tag) for child in element]
    assert places == sorted(places)
    for child in element:
        check_schema(child)


def junit(memscope: Run, path: Path, *words: object) -> ET.Element:
    memscope("check", path, "--junit", path.with_suffix(".xml"), "--force", *words)
    root = ET.parse(path.with_suffix(".xml")).getroot()
    check_schema(root)
    return root


def outcomes(root: ET.Element) -> dict[str, str]:
    """Name of each test case → tag of its outcome."""
    cases = root.iter("testcase")
    return {case.attrib["name"]: case[0].tag if len(case) else "" for case in cases}


def test_each_limit_is_a_case(memscope: Run, whole: Path) -> None:
    broken, unmeasured = "residency.uploads_per_step <= 7", "my.own.peak <= 3"
    limits = ["--limit", "driver.calls_per_step == 0", "--limit", broken, "--limit", unmeasured]
    root = junit(memscope, whole, *limits)
    found = outcomes(root)
    assert found["driver.calls_per_step == 0"] == "system-out"
    assert found[broken] == "failure"
    assert found[unmeasured] == "error"
    assert found["residency.avoidable_uploads <= 2"] == "skipped"  # a default, shown only
    assert found["allocator.cache_ratio <= 0.2"] == "skipped"
    suite = root[0]
    assert (suite.attrib["failures"], suite.attrib["errors"]) == ("1", "1")
    assert int(suite.attrib["tests"]) == len(found)
    assert (root.attrib["failures"], root.attrib["errors"]) == ("1", "1")


def test_a_failure_says_limit_actual_and_what_to_do(memscope: Run, whole: Path) -> None:
    root = junit(memscope, whole)
    (failure,) = root.iter("failure")
    assert failure.attrib["message"] == "residency.avoidable_uploads = 3.64 layers, default <= 2"
    assert "--policy pinned" in (failure.text or "")
    assert str(whole) in (failure.text or "")


def test_metrics_are_properties(memscope: Run, whole: Path) -> None:
    root = junit(memscope, whole)
    found = {each.attrib["name"]: each.attrib["value"] for each in root.iter("property")}
    assert found["residency.uploads_per_step"] == "8 layers"
    assert found["memory.peak_bytes"] == "5690 bytes"
    assert "allocator.cache_ratio" not in found


def test_a_suite_for_each_recording(memscope: Run, whole: Path, cut: Path) -> None:
    out = whole.with_suffix(".xml")
    memscope("check", whole, cut, "--junit", out)
    root = ET.parse(out).getroot()
    check_schema(root)
    assert len(root) == 2
    for path, suite in zip((whole, cut), root, strict=True):
        assert str(path) in suite.attrib["name"]


def test_text_of_strangers_is_no_markup(memscope: Run, tmp_path: Path) -> None:
    name = "a\x00\x1b[31m<b>&\ud800\uffff"
    rows = [event(Kind.STEP, 1, step=0), event(Kind.POOL_HIT, 2, step=1, name="<&\x07>")]
    rows += [event(Kind.STEP, 3, step=1), fact("device.0", {"name": name, "kind": "cuda"})]
    path = write_recording(tmp_path / "odd.mscope", rows)
    root = junit(memscope, path)
    names = [each.attrib["name"] for each in root.iter("property")]
    assert "pool.hit_rate[<&\ufffd>]" in names


def test_nothing_is_overwritten_unasked(memscope: Run, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.xml"
    out.write_text("mine")
    found = memscope("check", whole, "--junit", out)
    assert (found.code, "--force" in found.err) == (2, True)
    assert out.read_text() == "mine"
    memscope("check", whole, "--junit", out, "--force")
    assert out.read_text().startswith("<?xml")


def test_what_it_wrote_before_is_replaced_unasked(memscope: Run, whole: Path, cut: Path) -> None:
    """A CI job that runs again."""
    out = whole.with_suffix(".xml")
    for path in (whole, cut):
        found = memscope("check", path, "--limit", "driver.calls_per_step", "--junit", out)
        assert "--force" not in found.err
        assert str(path) in ET.parse(out).getroot()[0].attrib["name"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mine",
        "<testsuites",
        '<testsuites name="pytest tests"><testsuite name="a" tests="3"/></testsuites>',
        '<page><testsuites name="memscope check"/></page>',
        '<?xml version="1.0" encoding="big5"?><testsuites name="memscope check"/>',
        '<?xml version="1.0" encoding="rot13"?><testsuites name="memscope check"/>',
        "<a" + "a" * 40_000_000,
    ],
    ids=range(8),
)
def test_results_of_others_are_not_replaced_unasked(memscope: Run, whole: Path, text: str) -> None:
    out = whole.with_suffix(".xml")
    out.write_text(text)
    found = memscope("check", whole, "--junit", out)
    assert (found.code, found.out, out.read_text()) == (2, "", text)
    assert f"{out} exists and was not written by `memscope check`." in found.err
