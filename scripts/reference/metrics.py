"""The page of all metrics, from the registry `headrace.wire.metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.wire.metrics import HOLD_SECONDS, PIPELINE_METRICS, SCOPE_METRICS, SERVER_METRICS, STREAM_METRICS, TRIGGER_METRICS, Metric

PAGE = "metrics.md"

_SECTIONS = {
    "API server": SERVER_METRICS,
    "Shared streams": STREAM_METRICS,
    "Triggers": TRIGGER_METRICS,
    "Scopes": (*SCOPE_METRICS, HOLD_SECONDS),
    "Pipelines": PIPELINE_METRICS,
}


def render() -> str:
    """Return the page."""
    lines = [
        "# Metrics",
        "",
        "`GET /metrics` of the API serves these metrics in Prometheus' text format. It takes the same authentication as the admin API.",
        "",
        "The first 100 names of a label have series of their own. All others are added up in one series with the label value `(others)`.",
        "Counters outlive the processes that count. Items of several projects with one name are added up.",
    ]
    for title, metrics in _SECTIONS.items():
        lines += ["", f"## {title}", "", "| metric | kind | unit | label | meaning |", "|---|---|---|---|---|", *_rows(metrics)]
    return "\n".join(lines)


def _rows(metrics: Iterable[Metric]) -> Iterator[str]:
    for metric in metrics:
        label = f"`{metric.label}`" if metric.label else ""
        yield f"| `{metric.full_name}` | {metric.kind} | {metric.unit} | {label} | {metric.help} |"
