"""The registry of metrics, the response of `/metrics` and the documentation have the same metrics."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from headrace.api.admin.metrics import exposition
from headrace.core.ledger.counters import COUNTER_HELP, StreamCounters
from headrace.store.queries.series import Series, TriggerCounts
from headrace.wire.metrics import METRICS, PREFIX, Metric
from headrace.wire.pipelines.scopes import ScopeStatus
from headrace.wire.status.status import EventCount, ListSizes, PipelineStatus, Status, StreamStatus, Totals

DOCS = Path(__file__).resolve().parents[4] / "docs"
COUNTERS = StreamCounters(*range(1, len(COUNTER_HELP) + 1))


@pytest.fixture
def families() -> dict[str, Family]:
    status = Status.model_construct(
        version="1.2.3",
        events=EventCount(total=7, per_second=0.0),
        dead_letter_counts={"open": 1},
        alerts=[],
        counts=ListSizes(),
        totals=Totals(),
    )
    series = Series(
        triggers=[TriggerCounts("t", 1, 2, 3, 4, 5)],
        streams=[StreamStatus(stream="s", state="polling", job_id=1, counters=COUNTERS)],
        scopes=[
            ScopeStatus(scope="c", cursor=1, lag=2, waiting=3, ordered=4, lost=5, late=6, cycles=7, batch=8, updated=datetime.now(UTC))
        ],
        pipelines=[PipelineStatus(name="p", on=[], table=None, last_run=None, runs=1, failed=2, events=3, rows=4)],
    )
    return {family.name: family for family in text_string_to_metric_families(exposition(status, series).decode())}


def test_exactly_the_metrics_of_the_registry_are_served(families: dict[str, Family]) -> None:
    assert list(families) == [PREFIX + metric.name for metric in METRICS]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_served_with_the_type_help_and_label_of_the_registry(families: dict[str, Family], metric: Metric) -> None:
    family = families[PREFIX + metric.name]
    assert (family.type, family.documentation) == (metric.kind, metric.help)
    assert family.samples
    for sample in family.samples:
        assert set(sample.labels) - {"le"} == ({metric.label} if metric.label else set())


def test_each_counter_of_a_stream_is_served_with_its_own_value(families: dict[str, Family]) -> None:
    served = [families[f"{PREFIX}stream_{name}"].samples[0].value for name in COUNTER_HELP]
    assert served == list(range(1, len(COUNTER_HELP) + 1))


def test_the_documentation_names_only_metrics_that_exist() -> None:
    names = {metric.full_name for metric in METRICS}
    groups = "|".join(sorted({metric.name.split("_")[0] for metric in METRICS}))
    pattern = re.compile(rf"\b{PREFIX}(?:{groups})_[a-z_]+\b")
    unknown = {
        f"{page.relative_to(DOCS)}: {name}"
        for page in DOCS.rglob("*.md")
        for name in pattern.findall(page.read_text("utf-8"))
        if name.removesuffix("_bucket") not in names
    }
    assert unknown == set()
