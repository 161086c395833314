"""The alerts of a status: each rule with a status that meets it, and with the nearest status that does not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.api.alerts import MAX_ALERTS, alerts_of
from headrace.store.db.outages import Outage
from headrace.wire.control.jobs import Blocked
from headrace.wire.control.streams import CopyReport, LaneReport, RetryReport
from headrace.wire.pipelines.scopes import RunningBatchSummary, ScopeStatus
from headrace.wire.status.alerts import Alert
from headrace.wire.status.status import EventCount, JobStatus, ListSizes, PipelineStatus, Status, StreamStatus, Totals, TriggerStatus

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def status(**parts: Any) -> Status:
    bare: dict[str, Any] = {name: [] for name in ("jobs", "triggers", "streams", "scopes", "pipelines", "runs", "recent")}
    bare |= {"version": "1", "now": NOW, "head": 0, "events": EventCount(total=0, per_second=0), "dead_letters": 0, "totals": Totals()}
    return Status(**(bare | parts))


def job(kind: str = "triggerer", id: int = 1, **more: Any) -> JobStatus:
    given: dict[str, Any] = {"state": "running", "started": ago(1000), "last_heartbeat": ago(0.5), "project": "flights"}
    return JobStatus(id=id, kind=kind, hostname="host", pid=id, **(given | more))


def trigger(name: str = "legs", **more: Any) -> TriggerStatus:
    given: dict[str, Any] = {"state": "running", "failure": None}
    return TriggerStatus(id=1, name=name, stream="folder", fired=0, rejected=0, job_id=1, **(given | more))


def scope(**more: Any) -> ScopeStatus:
    given: dict[str, Any] = {"lag": 0, "updated": ago(5)}
    counts = dict.fromkeys(("cursor", "waiting", "ordered", "lost", "late", "cycles", "batch"), 0)
    return ScopeStatus(scope="flights", **(counts | given | more))


def stream(**more: Any) -> StreamStatus:
    return StreamStatus(stream="folder", job_id=1, **({"state": "polling"} | more))


PIPELINE = PipelineStatus(name="delays", on=["*"], table="t", runs=0, failed=0, events=0, rows=0, last_run=None)
BOTH = [job(), job("pipeline", 2)]


def severities_and_subjects(found: list[Alert]) -> list[tuple[str, str]]:
    return [(alert.severity, alert.about) for alert in found]


WELL: dict[str, dict[str, Any]] = {
    "nothing at all": {},
    "everything runs": {"jobs": BOTH, "triggers": [trigger()], "pipelines": [PIPELINE], "scopes": [scope(running_since=ago(1000))]},
    "one event came just now": {"jobs": BOTH, "scopes": [scope(lag=1, updated=ago(4000), behind_since=ago(1), running_since=ago(1000))]},
    "a batch is running": {
        "jobs": BOTH,
        "scopes": [
            scope(lag=9, updated=ago(50), behind_since=ago(50), running_batch=RunningBatchSummary(batch=2, events=9, since=ago(50)))
        ],
    },
    "a pipeline starts Spark": {
        "jobs": [job("pipeline", 2, started=ago(30))],
        "scopes": [scope(lag=9, updated=ago(900), behind_since=ago(900), running_since=ago(30))],
    },
    "a process was stopped in order": {"jobs": [job(), job(id=9, state="succeeded", ended=ago(5))]},
    "a process was lost an hour ago": {"jobs": [job(), job(id=9, state="lost", ended=ago(3600))]},
    "an event is owed for a moment": {"streams": [stream(oldest_unresolved=3.0)]},
    "a failure was mended long ago": {"jobs": [job()], "triggers": [trigger(failure="no", failed=ago(3600))]},
}


@pytest.mark.parametrize("case", WELL)
def test_a_healthy_status_has_no_alerts(case: str) -> None:
    assert alerts_of(status(**WELL[case])) == []


RETRY = RetryReport(trigger_id=7, trigger="legs", lane="a.jsonl", position=3, attempts=2, seconds=9.0, error="ValueError: no\nmore")
LOST = [job(id=n, kind="pipeline", state="failed", started=ago(60 * n), ended=ago(20 * n), reason="disk full\nmore") for n in (2, 3)]
STANDS = {"updated": ago(11), "behind_since": ago(11)}
WRONG: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "no triggerer": ({"triggers": [trigger()]}, [("error", "process:triggerer")]),
    "no pipeline, nothing to do": ({"pipelines": [PIPELINE]}, [("warning", "process:pipeline")]),
    "no pipeline, events wait": ({"pipelines": [PIPELINE], "scopes": [scope(lag=7)]}, [("error", "scope:flights")]),
    "a late heartbeat": ({"jobs": [job(last_heartbeat=ago(9))]}, [("error", "job:1")]),
    "a silent job": ({"jobs": [job(state="silent", last_heartbeat=ago(40))]}, [("error", "job:1")]),
    "one crash": ({"jobs": [job("pipeline", 5, started=ago(10)), LOST[0]]}, [("warning", "process:pipeline")]),
    "a restart loop": ({"jobs": [job("pipeline", 5, started=ago(10)), *LOST]}, [("error", "process:pipeline")]),
    "a restart loop that ended": ({"jobs": [job("pipeline", 5, started=ago(130)), *LOST]}, [("warning", "process:pipeline")]),
    "a scope stands": ({"jobs": BOTH, "scopes": [scope(lag=1, **STANDS, running_since=ago(1000))]}, [("error", "scope:flights")]),
    "a scope that a driver of another one does not run": ({"jobs": BOTH, "scopes": [scope(lag=1, **STANDS)]}, [("error", "scope:flights")]),
    "a batch does not end": (
        {"jobs": BOTH, "scopes": [scope(lag=1, running_batch=RunningBatchSummary(batch=2, events=9, since=ago(700)))]},
        [("error", "scope:flights")],
    ),
    "a parked trigger": ({"jobs": [job()], "triggers": [trigger(state="parked", failure="E: no")]}, [("error", "trigger:legs")]),
    "a failed trigger": ({"jobs": [job()], "triggers": [trigger(state="failed", failure="E: no")]}, [("error", "trigger:legs")]),
    "a failed stream": ({"streams": [stream(state="failed")]}, [("error", "stream:folder")]),
    "a stuck lane": ({"streams": [stream(lanes=[LaneReport(lane="a", error="TimeoutError: 60 s")])]}, [("error", "stream:folder")]),
    "an event is owed": ({"streams": [stream(oldest_unresolved=61.0, held_by="the store")]}, [("error", "stream:folder")]),
    "dead letters that are not copied": (
        {"streams": [stream(copies=CopyReport(target="topic dead", error="The topic does not exist."))]},
        [("warning", "stream:folder")],
    ),
    "a retry": ({"streams": [stream(lanes_retrying=1, retrying=[RETRY])]}, [("warning", "stream:folder")]),
    "dead letters": ({"dead_letters": 2}, [("warning", "dead-letters")]),
    "a blocked runner": (
        {"jobs": [job(blocked=Blocked(trigger_id=1, trigger="legs", seconds=9, stack=[]))]},
        [("warning", "job:1")],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_each_rule_raises_its_alert(case: str) -> None:
    parts, expected = WRONG[case]
    assert severities_and_subjects(alerts_of(status(**parts))) == expected


def test_a_restart_loop_alert_has_the_count_and_the_last_reason() -> None:
    (alert,) = alerts_of(status(jobs=LOST))
    assert "2 times" in alert.summary
    assert alert.summary.endswith("disk full")


def test_a_retry_alert_names_the_trigger_and_the_reason() -> None:
    (alert,) = alerts_of(status(streams=[stream(lanes_retrying=3, retrying=[RETRY])]))
    assert alert.summary == "3 lanes wait for a retry on stream folder; trigger legs failed 2 times in lane a.jsonl: ValueError: no"


def test_a_full_disk_precedes_other_alerts_and_suppresses_alerts_on_heartbeats() -> None:
    outage = Outage(ago(3), "The disk is full: x.db takes no more.", "Make room.")
    found = alerts_of(status(jobs=[job(state="silent", last_heartbeat=ago(99))], triggers=[trigger()], dead_letters=1), outage)
    assert severities_and_subjects(found) == [("error", "storage"), ("warning", "dead-letters")]
    assert found[0].summary == "Nothing can be stored: The disk is full: x.db takes no more. Make room."
    assert found[0].since == ago(3)


def test_a_local_alert_replaces_the_alert_on_the_jobs_of_the_process() -> None:
    local = Alert(severity="error", about="process:pipeline", summary="exit code 1", section="processes")
    found = alerts_of(status(jobs=LOST, dead_letters=1), local=[local])
    assert [alert.summary for alert in found if alert.about == "process:pipeline"] == ["exit code 1"]
    assert found[0] is local


def test_errors_precede_warnings_and_many_alerts_of_a_kind_are_summarised() -> None:
    many = [trigger(f"t{n}", state="parked", failure="E: no") for n in range(10_000)]
    found = alerts_of(status(jobs=[job()], triggers=many, dead_letters=1))
    assert [alert.severity for alert in found] == ["error"] * 6 + ["warning"]
    assert found[5].summary == "9,995 more triggers are parked."


def test_triggers_that_the_status_does_not_list_are_counted() -> None:
    some = [trigger(f"t{n}", state="parked", failure="E: no") for n in range(20)]
    found = alerts_of(status(triggers=some, counts=ListSizes(jobs={"triggerer": 1}, triggers={"parked": 10_000})))
    assert len(found) == 6
    assert found[5].summary == "9,995 more triggers are parked."


def test_the_list_is_bounded() -> None:
    streams = [stream(state="failed").model_copy(update={"stream": f"s{n}"}) for n in range(500)]
    found = alerts_of(status(streams=streams))
    assert len(found) == MAX_ALERTS + 1
    assert found[-1].summary == "And 450 things more."
