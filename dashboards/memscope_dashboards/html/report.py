"""The report as one HTML file that works offline."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from importlib.metadata import PackageNotFoundError, version

from plotly.offline import get_plotlyjs

from memscope.analysis.summary.residency_map import ResidencyMap
from memscope.analysis.summary.summary import Summary
from memscope.analysis.timeline.timeline import Timeline
from memscope_dashboards.html.alerts import render_alerts
from memscope_dashboards.html.chart import Chart
from memscope_dashboards.html.facts import render_facts, subtitle, title
from memscope_dashboards.html.ledger_table import render_ledgers
from memscope_dashboards.html.markup import embed_json, escape, fill, resource
from memscope_dashboards.html.report_charts import draw_charts
from memscope_dashboards.html.run_overview import RunOverview, draw_overview, render_overview
from memscope_dashboards.html.tables import render_glance, render_metrics, render_verdicts

# The sections of the page, in order. To add one, write its file and list it here.
BEFORE_CHARTS = (render_verdicts, render_glance, render_ledgers)
AFTER_CHARTS = (render_metrics, render_facts)


def render_report(
    summary: Summary,
    timeline: Timeline,
    residency_map: ResidencyMap,
    overview: RunOverview | None = None,
) -> str:
    """The whole page. Write it as UTF-8 with line feeds only.

    ``overview``: the run that the recording belongs to, shown at the top.
    """
    charts = draw_charts(timeline, residency_map)
    run_charts = (draw_overview(overview.alignment),) if overview is not None else ()
    return fill_page(
        title=title(summary),
        subtitle=subtitle(summary),
        heading="Over the run",
        charts=charts,
        run_charts=run_charts,
        before_charts=_run(overview, run_charts)
        + render_alerts(summary, timeline)
        + "".join(render(summary) for render in BEFORE_CHARTS),
        after_charts="".join(render(summary) for render in AFTER_CHARTS),
    )


def fill_page(
    *,
    title: str,
    subtitle: str,
    heading: str,
    charts: tuple[Chart, ...],
    run_charts: tuple[Chart, ...] = (),
    before_charts: str,
    after_charts: str,
) -> str:
    """A page with ``charts`` under ``heading``, and markup before and after them.

    ``before_charts`` must contain the elements of ``run_charts``.
    """
    library = get_plotlyjs()
    script = resource("page.js")
    return fill(
        resource("template.html") + "\n",
        policy=content_policy(script, library),
        version=escape(_own_version()),
        title=escape(title),
        subtitle=escape(subtitle),
        heading=escape(heading),
        style=resource("style.css"),
        charts="".join(map(_chart, charts)),
        footer=_footer(library),
        data=_chart_data((*run_charts, *charts)),
        plotly=base64.b64encode(gzip.compress(library.encode(), 9, mtime=0)).decode(),
        script=script,
        before_charts=before_charts,
        after_charts=after_charts,
    )


def _run(overview: RunOverview | None, charts: tuple[Chart, ...]) -> str:
    if overview is None:
        return ""
    return f'<section id="run">{render_overview(overview)}{"".join(map(_chart, charts))}</section>'


def content_policy(*scripts: str) -> str:
    """A content security policy: the page loads nothing and runs only ``scripts``, by hash.

    Inline styles and images are allowed because plotly.js needs them to draw and to save pictures.
    """
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _chart(chart: Chart) -> str:
    legend = "".join(
        f'<span style="--swatch: var({colour})">{escape(words)}</span>'
        for colour, words in chart.legend
    )
    drawing = ""
    if chart.figure is not None:
        height = int(chart.figure.layout.height)
        drawing = f'<div class="plot" id="plot-{chart.key}" style="min-height: {height}px"></div>'
    return (
        f'<div class="chart"><h3>{escape(chart.title)}</h3>'
        f'<p class="note">{escape(chart.note, limit=2000)}</p>'
        f"{f'<div class=legend>{legend}</div>' if legend else ''}{drawing}</div>"
    )


def _chart_data(charts: tuple[Chart, ...]) -> str:
    drawn = ",".join(
        f'{{"id":"plot-{chart.key}","figure":{chart.figure.to_json()}}}'
        for chart in charts
        if chart.figure is not None
    )
    return embed_json(f"[{drawn}]")


def _footer(library: str) -> str:
    found = re.search(r"plotly\.js v([\w.-]+)\s*\*\s*(Copyright [^\n]*)", library[:1000])
    name, notice = (f"plotly.js {found[1]}", found[2]) if found else ("plotly.js", "Plotly, Inc.")
    return (
        f"<p>Made by memscope {escape(_own_version())}. This file is complete and loads nothing "
        f"from the network.</p><details><summary>Charts by {escape(name)}, MIT licence</summary>"
        f"<p>{escape(notice)}</p><p>{escape(resource('plotly-license.txt'), limit=2000)}</p>"
        "</details>"
    )


def _own_version() -> str:
    try:
        return version("memscope-torch")
    except PackageNotFoundError:
        return "(not installed)"
