"""Verdicts, metrics and warnings as HTML. They work without JavaScript."""

from __future__ import annotations

from collections.abc import Iterable

from memscope.analysis.limits.limits import Outcome, Verdict
from memscope.analysis.metrics.metric import Metric
from memscope.analysis.metrics.table import METRICS, find_definition
from memscope.analysis.summary.no_device import defaults_without_device, no_device_words
from memscope.analysis.summary.sentence import Sentence
from memscope.analysis.summary.summary import Summary
from memscope.units import format_value
from memscope_dashboards.html.markup import escape

# Outcome → (CSS class of the row, text)
_MARKS = {
    Outcome.FAIL: ("fail", "Broken"),
    Outcome.WARN: ("warn", "Warning"),
    Outcome.PASS: ("pass", "Pass"),
    Outcome.NOT_MEASURED: ("unjudged", "Not measured"),
    Outcome.NOT_APPLICABLE: ("unjudged", "Not applicable"),
}
_ORDER = tuple(_MARKS)
_PRESSING = (Outcome.FAIL, Outcome.WARN)
_JUDGED = (*_PRESSING, Outcome.PASS)


def render_verdicts(summary: Summary) -> str:
    """Verdicts in order: broken limits and warnings with advice, passes, then the rest."""
    absent = defaults_without_device(summary)
    possible = [verdict for verdict in summary.verdicts if verdict not in absent]
    verdicts = sorted(possible, key=lambda verdict: _ORDER.index(verdict.verdict))
    judged = [verdict for verdict in verdicts if verdict.verdict in _JUDGED]
    unjudged = [verdict for verdict in verdicts if verdict.verdict not in _JUDGED]
    return (
        f'<section id="verdicts"><h2>{_headline(judged)}{_note(summary)}</h2>'
        f"{_sentences(summary.sentences)}{_verdict_list(judged)}{_absent(summary)}"
        f"{_unjudged(unjudged)}</section>"
    )


def _note(summary: Summary) -> str:
    return " (partial recording)" if summary.state.is_partial else ""


def _headline(judged: Iterable[Verdict]) -> str:
    metrics: dict[Outcome, list[str]] = {}
    for verdict in judged:
        metrics.setdefault(verdict.verdict, []).append(verdict.metric)
    if Outcome.FAIL in metrics:
        return f"Limits broken: {escape(', '.join(dict.fromkeys(metrics[Outcome.FAIL])))}"
    if Outcome.WARN in metrics:
        return f"Close to a limit: {escape(', '.join(dict.fromkeys(metrics[Outcome.WARN])))}"
    return "Every limit that could be checked holds" if metrics else "No limit could be checked"


def _sentences(sentences: Iterable[Sentence]) -> str:
    items = "".join(
        f'<li class="{sentence.severity}">{escape(sentence.text, limit=2000)}</li>'
        for sentence in sentences
    )
    return f'<ul class="sentences">{items}</ul>' if items else ""


def _verdict_list(verdicts: Iterable[Verdict]) -> str:
    items = "".join(map(_verdict, verdicts))
    return f'<ul class="verdicts">{items}</ul>' if items else ""


def _verdict(verdict: Verdict) -> str:
    row_class, word = _MARKS[verdict.verdict]
    value = "" if verdict.value is None else verdict.actual
    advice = verdict.advice if verdict.verdict in _PRESSING else ""
    text = " ".join(filter(None, (_sentence(verdict.reason), advice)))
    advice_markup = f'<p class="advice">{escape(text, limit=1000)}</p>' if text else ""
    return (
        f'<li class="{row_class}"><span class="mark">{word}</span>'
        f'<code class="limit">{escape(verdict.limit)}</code>'
        f'<span class="value">{escape(value)}</span>{advice_markup}</li>'
    )


def _absent(summary: Summary) -> str:
    """How many limits need a device, if none was recorded."""
    words = _sentence(no_device_words(summary))
    return f'<p class="note">{escape(words)}</p>' if words else ""


def _unjudged(verdicts: list[Verdict]) -> str:
    if not verdicts:
        return ""
    return (
        "<details><summary>Limits that could not be checked, and why</summary>"
        f"{_verdict_list(verdicts)}</details>"
    )


def _sentence(text: str | None) -> str:
    if not text:
        return ""
    if not set("._") & set(text.split()[0]):  # it may start with a metric's name
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def render_glance(summary: Summary) -> str:
    """The main metrics as large tiles; empty text if none has a value."""
    tiles = "".join(
        f'<div title="{row.name}"><strong>{escape(_value(metric))}</strong>'
        f"<span>{row.overview}{_place(metric)}</span></div>"
        for row in METRICS
        if row.overview and (metric := summary.metrics.get(row.name)) and metric.value is not None
    )
    return f'<section id="glance" class="glance">{tiles}</section>' if tiles else ""


def _value(metric: Metric) -> str:
    return "" if metric.value is None else format_value(metric.value, metric.unit)


def _place(metric: Metric) -> str:
    """The metric's device, if the process used several."""
    return f"<br>{escape(metric.device_words)}" if metric.device_words else ""


def render_metrics(summary: Summary) -> str:
    """A table of all metrics, then those without a value and why."""
    measured = [metric for metric in summary.metrics.values() if metric.value is not None]
    missing = [metric for metric in summary.metrics.values() if metric.value is None]
    table = _metric_table(measured) if measured else "<p>No metric has a value.</p>"
    return (
        f'<section id="metrics"><h2>Metrics{_note(summary)}</h2>{table}'
        f"<details><summary>Metrics without a value, and why</summary>{_metric_table(missing)}"
        "</details></section>"
    )


def _metric_table(metrics: Iterable[Metric]) -> str:
    rows = "".join(map(_metric_row, metrics))
    return (
        '<table class="metrics"><thead><tr><th>Metric</th><th class="value">Value</th>'
        f"<th>What it is</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _metric_row(metric: Metric) -> str:
    definition = find_definition(metric.name)
    words = _sentence(definition.definition if definition else None)
    if metric.value is None:
        value = str(Outcome.NOT_MEASURED if metric.is_applicable else Outcome.NOT_APPLICABLE)
        value_class = "value absent"
    else:
        value, value_class = _value(metric), "value"
    words += f" Here: {metric.device_words}." if metric.device_words else ""
    why = (
        f'<br><span class="why">{escape(_sentence(metric.reason))}</span>' if metric.reason else ""
    )
    return (
        f"<tr><th><code>{escape(metric.name)}</code></th>"
        f'<td class="{value_class}">{escape(value)}</td>'
        f'<td class="definition">{escape(words)}{why}</td></tr>'
    )
