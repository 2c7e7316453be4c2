"""The pages in docs/ name everything that there is."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from memscope.analysis.diagnosis.explanation import Diagnosis
from memscope.analysis.metrics.table import METRICS
from memscope.analysis.timeline.reading_names import READINGS
from memscope.cli.verbs import VERBS
from memscope.events import COLUMNS, KINDS
from memscope.facts import DeviceFact, Fact
from tests.paths import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
PACKAGES = ("memscope", "runners/memscope_runners", "dashboards/memscope_dashboards")


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def table_names(text: str) -> list[str]:
    """What stands in backquotes in the first column of the text's tables."""
    cells = re.findall(r"^\| (`.*?) \|", text, flags=re.M)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))
    missing = []
    for link in links:
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(link)
    assert missing == []


def anchors(path: Path) -> list[str]:
    """Of a page, as GitHub names them."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), flags=re.M)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


def test_every_verb_stands_in_the_table() -> None:
    table = page("cli").partition("## Arguments")[0]
    assert table_names(table) == list(VERBS)


def test_every_key_of_the_live_view_is_listed() -> None:
    from memscope_dashboards.tui.key_table import KEYS

    table = page("cli").partition("| key |")[2].partition("\n\n")[0]
    assert set(table_names(table)) == {key.glyph for key in KEYS}


def test_every_metric_has_its_section() -> None:
    listed = re.findall(r"^### `(.*)`$", page("metrics"), flags=re.M)
    assert listed == [metric.name for metric in METRICS], "run: python docs/write_metrics.py"


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_metric_is_described_as_in_the_table(metric) -> None:
    section = page("metrics").partition(f"### `{metric.name}`\n")[2].partition("\n#")[0]
    assert f"- Unit: {metric.unit}" in section
    for limit in metric.limits:
        assert f"`{limit.limit}`" in section


def test_shown_output_has_the_advice_of_today() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = {
        "residency.avoidable_uploads": readme,
        "residency.uploads_per_step": page("pytest"),
        "memory.peak_bytes": re.sub(r"/tmp/\S+\.mscope", "RECORDING", page("pytest")),
    }
    advice = {metric.name: metric.advice for metric in METRICS}
    assert [name for name, text in shown.items() if advice[name] not in text] == []


def test_every_reading_is_listed() -> None:
    listed = table_names(page("metrics").partition("## Readings")[2])
    assert listed == [reading.name for reading in READINGS], "run: python docs/write_metrics.py"


def test_every_kind_and_column_of_an_event_is_listed() -> None:
    columns, kinds = page("recording").partition("| column |")[2].split("| kind | when |")
    assert set(table_names(columns)) >= {column.name for column in COLUMNS}
    assert set(table_names(kinds)) >= set(KINDS)


def test_every_fact_is_listed() -> None:
    listed = table_names(page("recording").partition("### Facts")[2])
    assert set(listed) >= {*Fact, *(f"{fact}.N" for fact in DeviceFact)}


def test_every_diagnosis_is_listed() -> None:
    assert set(table_names(page("explain").partition("## Diagnoses")[2])) == set(Diagnosis)


def test_keys_of_json_are_those_of_a_summary(tmp_path: Path) -> None:
    from memscope.analysis.summary.summary import summarize
    from memscope.analysis.timeline.read import read_timeline
    from memscope.reader.recording import open_recording
    from memscope.recorder.recorder import Recorder

    Recorder(tmp_path / "run.mscope").close()
    with open_recording(tmp_path / "run.mscope") as recording:
        keys = summarize(read_timeline(recording), recording.state).to_json().keys()
    table = page("json").partition("## summary")[2].partition("If several")[0]
    assert sorted(table_names(table)) == sorted(keys)


def test_variables_are_those_that_are_read() -> None:
    sources = [path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")]
    read = {
        name
        for path in sources
        for name in re.findall(r"\bMEMSCOPE_[A-Z_]+\b", path.read_text(encoding="utf-8"))
    }
    assert set(re.findall(r"\bMEMSCOPE_[A-Z_]+\b", page("cli"))) == read


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_is_described(package: str) -> None:
    rooms = [path.parent for path in (ROOT / package).glob("*/__init__.py")]
    if package == "memscope":
        rooms += [path.parent for path in (ROOT / package / "analysis").glob("*/__init__.py")]
    described = table_names(page("architecture").partition("## Rooms")[2])
    assert [room.name for room in rooms if f"{room.name}/" not in described] == []


def test_layers_are_those_that_are_checked() -> None:
    shown = (
        page("architecture").partition("only those below it:\n\n```text\n")[2].partition("```")[0]
    )
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = (
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
    )
    checked = [re.findall(r"memscope\.(\w+)", layer) for layer in layers]
    assert [line.split(", ") for line in shown.splitlines()] == checked


def test_table_of_metrics_is_written_anew(tmp_path: Path) -> None:
    copy = tmp_path / "write_metrics.py"
    copy.write_text((DOCS / "write_metrics.py").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "metrics.md").write_text(page("metrics"), encoding="utf-8")
    subprocess.run([sys.executable, copy], check=True, timeout=300)
    written = (tmp_path / "metrics.md").read_text(encoding="utf-8")
    assert re.findall("^### .*", written, flags=re.M) == re.findall(
        "^### .*", page("metrics"), flags=re.M
    )
