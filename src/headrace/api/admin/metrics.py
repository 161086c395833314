"""The status in Prometheus' words: `headrace_` names, `_total` and `_seconds`, labelled by stream, trigger, scope and pipeline only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from types import SimpleNamespace
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headrace.store.queries.series import Series
from headrace.wire.custody.events import HOLD_BUCKETS
from headrace.wire.pipelines.scopes import ScopeStatus
from headrace.wire.status.status import Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Shape(NamedTuple):
    """One metric: its name after `headrace_`, the field that it shows, whether it only grows, and what it means."""

    name: str
    field: str
    grows: bool
    help: str


STREAM = (
    Shape("stream_read", "recorded", True, "Raw events read from the upstream and accounted for, as headrace audit counts them."),
    Shape("stream_advanced", "advanced", True, "Raw events for which the upstream was advanced."),
    Shape("stream_rejected", "rejected", True, "Raw events that a trigger rejected."),
    Shape("stream_filtered", "filtered", True, "Raw events that no trigger wanted."),
    Shape("stream_failed", "failed", True, "Raw events that a trigger did not answer."),
    Shape("stream_spilled", "spilled", True, "Raw events that went into a backlog."),
    Shape("stream_resolved", "resolved", True, "Raw events that every trigger has answered."),
    Shape("stream_ack_seconds", "ack_seconds", True, "Time from reading to the last answer, summed over the raw events resolved."),
    Shape("stream_advances", "advances", True, "Calls of advance that succeeded."),
    Shape("stream_advance_errors", "advance_errors", True, "Calls of advance that failed or took too long."),
    Shape("stream_advance_seconds", "advance_seconds", True, "Time taken by the calls of advance that succeeded."),
    Shape("stream_advances_in_flight", "in_flight", False, "Lanes that are being advanced."),
    Shape("stream_lag", "lag", False, "How far the lanes are behind their ends, in the upstream's own positions, if it reports them."),
    Shape("stream_outstanding", "outstanding", False, "Raw events that are not resolved."),
    Shape("stream_oldest_unresolved_seconds", "oldest_unresolved", False, "Age of the oldest raw event that is not resolved."),
)
TRIGGER = (
    Shape("trigger_fired", "fired", True, "Times the trigger fired on an event."),
    Shape("trigger_rejected", "rejected", True, "Raw events of the trigger that became dead letters."),
    Shape("trigger_spilled", "spilled", True, "Raw events that went into the trigger's backlog."),
    Shape("trigger_conflicts", "conflicts", True, "Events that the trigger fired under an id known with another payload: dropped."),
    Shape("backlog_depth", "backlog", False, "Raw events in the trigger's backlog."),
)
SCOPE = (
    Shape("scope_cursor", "cursor", False, "The seq up to which the scope has committed."),
    Shape("scope_lag", "lag", False, "Events of the log that the scope has not committed."),
    Shape("scope_open_runs", "open_runs", False, "Planned runs of pipelines that have no outcome yet."),
    Shape("ordering_waiting", "waiting", False, "Events that wait for the one they follow."),
    Shape("ordering_released", "ordered", True, "Events released in order."),
    Shape("ordering_lost", "lost", True, "Events released without the one they follow, which did not come within the lookback."),
    Shape("ordering_late", "late", True, "Events that came after their followers had been released."),
    Shape("ordering_cycle", "cycles", True, "Cycles, the events of which were released because they follow one another."),
)
PIPELINE = (
    Shape("pipeline_runs", "runs", True, "Runs of the pipeline."),
    Shape("pipeline_runs_failed", "failed", True, "Runs of the pipeline that failed."),
    Shape("pipeline_events", "events", True, "Events taken by runs that succeeded."),
    Shape("pipeline_rows", "rows", True, "Rows written by runs that succeeded."),
)


def exposition(status: Status, series: Series) -> bytes:
    """Return the status and the series as Prometheus reads them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StatusCollector(status, series))
    return generate_latest(registry)


class _StatusCollector(Collector):
    """Gives one status to one registry."""

    def __init__(self, status: Status, series: Series) -> None:
        self._status = status
        self._series = series

    def collect(self) -> Iterable[Metric]:
        status, series = self._status, self._series
        yield _info(status.version)
        yield CounterMetricFamily("headrace_events_stored", "Events in the log.", value=status.events.total)
        yield _letters(status)
        yield _alerts(status)
        yield from _jobs(status)
        yield _triggers(status)
        yield from _family("stream", STREAM, [*((item.stream, item) for item in series.streams), *_others(series)])
        yield from _family("trigger", TRIGGER, [(item.name, item) for item in series.triggers])
        yield from _family("scope", SCOPE, [(item.scope, item) for item in series.scopes])
        yield _holds(series.scopes)
        yield from _family("pipeline", PIPELINE, [(item.name, item) for item in series.pipelines])


def _info(version: str) -> Metric:
    family = GaugeMetricFamily("headrace_build_info", "The api's version.", labels=["version"])
    family.add_metric([version], 1)
    return family


def _letters(status: Status) -> Metric:
    family = GaugeMetricFamily("headrace_dead_letters", "Dead letters.", labels=["state"])
    for state, value in status.letters.items():
        family.add_metric([state], value)
    return family


def _alerts(status: Status) -> Metric:
    family = GaugeMetricFamily("headrace_alerts", "Alerts, as the first lines of the page show them.", labels=["severity"])
    for severity in ("error", "warning"):
        family.add_metric([severity], sum(alert.severity == severity for alert in status.alerts))
    return family


def _jobs(status: Status) -> Iterator[Metric]:
    family = GaugeMetricFamily("headrace_jobs", "Processes that run.", labels=["kind"])
    for kind in ("triggerer", "pipeline", "worker"):
        family.add_metric([kind], status.counts.jobs.get(kind, 0))
    yield family
    blocked = status.counts.blocked
    yield GaugeMetricFamily("headrace_triggerers_blocked", "Triggerers in which one trigger blocks all others.", value=blocked)


def _triggers(status: Status) -> Metric:
    family = GaugeMetricFamily("headrace_triggers", "Triggers that are registered.", labels=["state"])
    for state in ("waiting", "running", "failed", "parked"):
        family.add_metric([state], status.counts.triggers.get(state, 0))
    return family


def _holds(scopes: Iterable[ScopeStatus]) -> Metric:
    family = HistogramMetricFamily("headrace_ordering_hold_seconds", "How long events waited that had to.", labels=["scope"])
    bounds = [*map(str, HOLD_BUCKETS), "+Inf"]
    for scope in scopes:
        counts = accumulate(scope.holds or [0] * len(bounds))
        family.add_metric([scope.scope], list(zip(bounds, counts, strict=True)), scope.hold_seconds)
    return family


def _others(series: Series) -> Iterator[tuple[str, SimpleNamespace]]:
    """Yield the sums of the streams without a series of their own; what is known of single streams only is 0 there."""
    if series.other_streams is not None:
        known = dict.fromkeys((shape.field for shape in STREAM), 0.0)
        yield series.other_streams.stream, SimpleNamespace(**(known | series.other_streams.counts))


def _family(label: str, shapes: Iterable[Shape], items: Iterable[tuple[str, object]]) -> Iterator[Metric]:
    """Yield a metric for each shape; items of one name, which several projects may have, are summed."""
    listed = list(items)
    for shape in shapes:
        sums: Counter[str] = Counter()
        for name, item in listed:
            sums[name] += getattr(item, shape.field) or 0
        made = CounterMetricFamily if shape.grows else GaugeMetricFamily
        family = made(f"headrace_{shape.name}", shape.help, labels=[label])
        for name, value in sums.items():
            family.add_metric([name], value)
        yield family
