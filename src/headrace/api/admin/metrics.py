"""The metrics of the registry in Prometheus' text format, from the status and the series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final, TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from headrace.store.queries.series import Series
from headrace.wire.custody.events import HOLD_BUCKETS
from headrace.wire.metrics import (
    HOLD_SECONDS,
    METRICS,
    PIPELINE_METRICS,
    PREFIX,
    SCOPE_METRICS,
    STREAM_METRICS,
    TRIGGER_METRICS,
    Metric,
)
from headrace.wire.pipelines.scopes import ScopeStatus
from headrace.wire.status.status import Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Samples: TypeAlias = Iterable[tuple[str, float]]
"""Values of one metric, each with the value of its label, or "" if the metric has no label."""

_FAMILIES: Final[dict[str, type[Any]]] = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


def exposition(status: Status, series: Series) -> bytes:
    """Return all metrics as Prometheus reads them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StatusCollector(status, series))
    return generate_latest(registry)


class _StatusCollector(Collector):
    """Collects the metrics of one status."""

    def __init__(self, status: Status, series: Series) -> None:
        self._status = status
        self._series = series

    def collect(self) -> Iterable[Family]:
        samples = all_samples(self._status, self._series)
        for metric in METRICS:
            yield _hold_times(self._series.scopes) if metric is HOLD_SECONDS else _family(metric, samples[metric.name])


def all_samples(status: Status, series: Series) -> dict[str, Samples]:
    """Return the samples of each metric by its name, but for the histogram of hold times."""
    jobs, triggers = status.counts.jobs, status.counts.triggers
    samples: dict[str, Samples] = {
        "build_info": [(status.version, 1)],
        "events_stored": [("", status.events.total)],
        "dead_letters": status.dead_letter_counts.items(),
        "alerts": [(severity, sum(alert.severity == severity for alert in status.alerts)) for severity in ("error", "warning")],
        "jobs": [(kind, jobs.get(kind, 0)) for kind in ("triggerer", "pipeline", "worker", "receiver")],
        "triggerers_blocked": [("", status.counts.blocked)],
        "triggers": [(state, triggers.get(state, 0)) for state in ("waiting", "running", "failed", "parked")],
    }
    samples |= _by_name(STREAM_METRICS, [(stream.stream, stream) for stream in series.streams])
    samples |= _by_name(TRIGGER_METRICS, [(trigger.name, trigger) for trigger in series.triggers])
    samples |= _by_name(SCOPE_METRICS, [(scope.scope, scope) for scope in series.scopes])
    samples |= _by_name(PIPELINE_METRICS, [(pipeline.name, pipeline) for pipeline in series.pipelines])
    return samples


def _by_name(metrics: Iterable[Metric], items: Iterable[tuple[str, object]]) -> Iterator[tuple[str, Samples]]:
    """Yield the samples of each metric. Items of one name, which several projects may have, are added up."""
    for metric in metrics:
        value = attrgetter(metric.field)
        sums: Counter[str] = Counter()
        for name, item in items:
            sums[name] += value(item) or 0
        yield metric.name, sums.items()


def _family(metric: Metric, samples: Samples) -> Any:
    family = _FAMILIES[metric.kind](PREFIX + metric.name, metric.help, labels=[metric.label] if metric.label else [])
    for label, value in samples:
        family.add_metric([label] if metric.label else [], value)
    return family


def _hold_times(scopes: Iterable[ScopeStatus]) -> Family:
    family = HistogramMetricFamily(PREFIX + HOLD_SECONDS.name, HOLD_SECONDS.help, labels=[HOLD_SECONDS.label])
    bounds = [*map(str, HOLD_BUCKETS), "+Inf"]
    for scope in scopes:
        counts = accumulate(scope.holds or [0] * len(bounds))
        family.add_metric([scope.scope], list(zip(bounds, counts, strict=True)), scope.hold_seconds)
    return family
