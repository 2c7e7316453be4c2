"""The page of a torch memory snapshot: diagnosis, shares, map and details."""

from __future__ import annotations

from collections.abc import Sequence

from memscope.analysis.diagnosis.explanation import Advice, Explanation, Share
from memscope.analysis.diagnosis.snapshot.picture import SnapshotPicture
from memscope.units import format_bytes
from memscope_dashboards.html.block_chart import draw_blocks
from memscope_dashboards.html.markup import escape, plain
from memscope_dashboards.html.report import fill_page

_LINE_CHARS = 300
_WHY_CHARS = 4000


def render_snapshot(name: str, found: SnapshotPicture) -> str:
    """The whole page. Write it as UTF-8 with line feeds only."""
    explanation, picture = found.explanation, found.picture
    schema = explanation.details.get("torch_since")
    return fill_page(
        title=plain(f"Memory snapshot {name}", limit=120),
        subtitle=plain(f"torch {schema} or newer, {explanation.device_name}"),
        heading=_heading(found),
        charts=(draw_blocks(picture),) if picture else (),
        before_charts=_diagnosis(explanation) + _shares(explanation.shares),
        after_charts=_report(explanation.lines()),
    )


def _heading(found: SnapshotPicture) -> str:
    if found.picture is None:
        return "The snapshot has no segments"
    moment = "when the last request failed" if found.explanation.details.get("oom") else "as dumped"
    return f"Segments and blocks, {moment}"


def _diagnosis(explanation: Explanation) -> str:
    known = explanation.diagnosis
    heading = f"Diagnosis: {known.replace('_', ' ')}" if known else "Nothing failed"
    notes = "".join(f"<li>{escape(note, limit=1000)}</li>" for note in explanation.notes)
    unknown = "".join(f"<li>{escape(each, limit=1000)}</li>" for each in explanation.unknown)
    return (
        f'<section id="verdicts"><h2>{escape(heading)}</h2>'
        f"<p>{escape(explanation.why, limit=_WHY_CHARS)}</p>"
        f"{_list(notes)}{_advice('Would help', explanation.help)}"
        f"{_advice('Would not help', explanation.no_help)}"
        f"{f'<h3>Not known</h3>{_list(unknown)}' if unknown else ''}</section>"
    )


def _list(items: str) -> str:
    return f'<ul class="sentences">{items}</ul>' if items else ""


def _advice(heading: str, advice: Sequence[Advice]) -> str:
    if not advice:
        return ""
    rows = "".join(map(_advice_row, advice))
    return f"<h3>{heading}</h3><table><tbody>{rows}</tbody></table>"


def _advice_row(advice: Advice) -> str:
    size = "" if advice.frees_bytes is None else f"frees {format_bytes(advice.frees_bytes)}"
    return (
        f"<tr><th><code>{escape(advice.setting)}</code></th>"
        f'<td class="value">{escape(size)}</td>'
        f'<td class="definition">{escape(advice.reason, limit=1000)}</td></tr>'
    )


def _shares(shares: Sequence[Share]) -> str:
    whole = sum(share.bytes for share in shares)
    if not whole:
        return ""
    rows = "".join(_share_row(share, whole) for share in shares)
    return (
        '<section id="ledger"><h2>Where the memory was</h2>'
        f'<table class="ledger"><tbody>{rows}</tbody></table></section>'
    )


def _share_row(share: Share, whole: int) -> str:
    return (
        f"<tr><th>{escape(share.name)}</th>"
        f'<td class="value">{escape(format_bytes(share.bytes))}</td>'
        f'<td class="bar"><span style="width: {share.bytes / whole:.2%}"></span></td></tr>'
    )


def _report(lines: Sequence[str]) -> str:
    """The output of `memscope explain`: free memory by pool and stream, owners, growth, peak."""
    if not lines:
        return ""
    text = "\n".join(escape(line, limit=_LINE_CHARS) for line in lines)
    return f'<section id="report"><h2>In detail</h2><pre class="mono">{text}</pre></section>'
