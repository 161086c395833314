"""Page, status, metrics and audit show the same counters, even if a killed process did not send its last report (first-use 6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.ledger.counters import StreamCounters
from headrace.store.custody.lanes import idle_lanes
from headrace.store.queries.audit import audit
from headrace.wire.control.jobs import CompleteJob, Heartbeat
from headrace.wire.control.streams import StreamReport
from support.processes.execution_api import Api, serving
from support.processes.store import Holder, holder
from support.sources.custody import answered, receipt, record


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def owner(api: Api) -> Holder:
    return holder(api.store, "first", "second")


def report(owner: Holder, read: int, advanced: int, stream: str = "folder") -> None:
    counters = StreamCounters(read=read, advanced=advanced)
    owner.store.jobs.heartbeat(owner.job_id, Heartbeat(streams=[StreamReport(stream=stream, state="polling", counters=counters)]))


def counters_by_place(api: Api) -> dict[str, tuple[int, int]]:
    """Return read and advanced as each place shows them."""
    status = api.http.get("/api/v1/status").json()
    (stream,) = status["streams"]
    (listed,) = api.http.get("/api/v1/streams").json()["streams"]
    metrics = dict(line.rsplit(" ", 1) for line in api.http.get("/metrics").text.splitlines() if not line.startswith("#"))
    return {
        "totals": (status["totals"]["read"], status["totals"]["advanced"]),
        "stream": (stream["counters"]["read"], stream["counters"]["advanced"]),
        "list": (listed["counters"]["read"], listed["counters"]["advanced"]),
        "metrics": (counted(metrics, "read"), counted(metrics, "advanced")),
    }


def counted(metrics: dict[str, str], name: str) -> int:
    return int(float(metrics[f'headrace_stream_{name}_total{{stream="folder"}}']))


def test_raw_events_that_a_killed_triggerer_did_not_report_are_counted(api: Api, owner: Holder) -> None:
    report(owner, 10, 8)
    record(owner, receipt(None, 99, 100, answered(1, fired=100)))  # and the job is killed before its next heartbeat
    owner.store.jobs.complete(owner.job_id, CompleteJob(state="failed"))
    assert set(counters_by_place(api).values()) == {(100, 100)}
    after = holder(api.store)
    record(after, receipt(99, 100, 1, answered(1, fired=1)))
    report(after, 31, 1)  # thirty are under way
    assert counters_by_place(api) == {"totals": (131, 101), "stream": (131, 101), "list": (131, 101), "metrics": (101, 101)}
    record(after, receipt(100, 199, 30))
    report(after, 31, 31)
    assert set(counters_by_place(api).values()) == {(131, 131)}
    assert audited(api) == 131


def test_counters_include_pruned_lanes(api: Api, owner: Holder) -> None:
    record(owner, receipt(None, 99, 100), receipt(None, 9, 10, lane="b.jsonl"))
    report(owner, 110, 110)
    api.clock.turn(100 * 86_400)
    api.store.prune(lambda connection: idle_lanes(connection, api.store.now(), 100))
    assert set(counters_by_place(api).values()) == {(110, 110)}
    assert audited(api) == 110


def test_a_stream_without_receipts_has_the_counters_of_its_jobs(api: Api, owner: Holder) -> None:
    report(owner, 10, 8)
    api.store.jobs.complete(owner.job_id, CompleteJob(state="failed"))
    report(holder(api.store), 5, 5)
    assert set(counters_by_place(api).values()) == {(15, 13)}


def audited(api: Api) -> int:
    with api.store.reading() as connection:
        return sum(stream.read for stream in audit(connection, api.store.now()).streams)
