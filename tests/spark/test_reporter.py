"""The reports and heartbeats of a driver to the real API; they need no session."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import select

from headrace.client.pipeline import PipelineClient
from headrace.errors import Fenced, PipelineError
from headrace.pipeline.execution.reporter import Reporter
from headrace.pipeline.heartbeat import FRESH_SECONDS, JobHeartbeat
from headrace.store.tables.control import jobs
from headrace.wire.control.jobs import CompleteJob, RegisterJob
from headrace.wire.pipelines.runs import BatchEnded, RunReport, RunState
from support.pipelines.kit import KEY, Api, running_api, until
from support.pipelines.plans import stored_cursor
from support.processes.calls import acquire_scope
from support.processes.network import CALM, Network


def registered(api: Api) -> PipelineClient:
    client = PipelineClient(api.url, key=KEY)
    client.register(RegisterJob(registration_id="the-pipeline", kind="pipeline", hostname="here", pid=1, project="flights"))
    return client


def run(number: int, state: RunState = "succeeded") -> RunReport:
    return RunReport(run_id=f"run-{number}", pipeline="legs", scope="flights", batch=number, state=state, started=datetime.now(UTC))


def test_reports_and_the_end_of_the_last_batch_are_sent(api: Api) -> None:
    with registered(api) as client, Reporter(client) as reporter:
        acquire_scope(client, "flights")
        reporter.report(run(1, "running"))
        reporter.report(run(1))
        for number in range(300):
            reporter.report(run(number + 2))
            reporter.batch_ended(BatchEnded(scope="flights", read=number, seconds=1.0))
        assert reporter.flush(lambda: False)
        report = stored_cursor(api.store, "flights").report
        assert report is not None
        assert (report.read, report.seconds) == (299, 1.0)
        assert {report.state for report in api.runs()} == {"succeeded"}
        assert len(api.runs()) == 301


def test_reports_are_sent_after_the_return_of_the_api_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.pipeline.execution.reporter.CLOSE_SECONDS", 0.2)
    with running_api(home) as first:
        client, port = registered(first), first.port
    with client, Reporter(client) as reporter:
        reporter.report(run(1))
        assert not reporter.flush(lambda: True)
        with running_api(home, port) as second:
            assert reporter.flush(lambda: False)
            assert [report.run_id for report in second.runs()] == ["run-1"]


def test_a_refused_report_is_raised_in_the_waiting_thread(api: Api) -> None:
    with registered(api) as client, Reporter(client) as reporter:
        client.complete(CompleteJob(state="succeeded"))
        reporter.report(run(1))
        with pytest.raises(PipelineError, match="A run cannot be reported: Job 1 has ended"):
            reporter.flush(lambda: False)
    assert api.runs() == []


def test_a_report_that_cannot_be_encoded_is_raised_in_the_waiting_thread(api: Api) -> None:
    with registered(api) as client, Reporter(client) as reporter:
        reporter.report(run(1).model_copy(update={"error": "half a pair: \ud800"}))
        with pytest.raises(PipelineError, match="cannot be reported"):
            reporter.flush(lambda: False)


def test_large_reports_are_sent_in_parts(api: Api) -> None:
    large = "x" * (6 * 1024 * 1024)
    with registered(api) as client, Reporter(client) as reporter:
        for number in range(3):
            reporter.report(run(number).model_copy(update={"error": large}))
        assert reporter.flush(lambda: False)
    assert len(api.runs()) == 3


def test_a_fence_calls_the_api_unless_a_heartbeat_is_recent(api: Api) -> None:
    stop = threading.Event()
    with registered(api) as client, JobHeartbeat(client, 3600, stop) as heart:
        heart.fence()
        client.complete(CompleteJob(state="failed", reason="its scope was taken over"))
        heart.fence()  # a fresh heartbeat is enough
        heart._confirmed -= FRESH_SECONDS  # as if the process had been suspended
        with pytest.raises(Fenced):
            heart.fence()
    assert stop.is_set()
    assert isinstance(heart.failure, Fenced)


def test_a_heartbeat_stops_the_process_after_the_end_of_its_job(api: Api) -> None:
    stop = threading.Event()
    with registered(api) as client, JobHeartbeat(client, 0.01, stop) as heart:
        client.complete(CompleteJob(state="failed", reason="given up on"))
        until(stop.is_set, "the heart saw it")
    assert heart.failure is not None


@pytest.mark.slow
def test_heartbeats_continue_during_downtime_of_the_api_server(home: Path) -> None:
    stop = threading.Event()
    with running_api(home) as first:
        client, port = registered(first), first.port
    with client, JobHeartbeat(client, 0.01, stop) as heart, running_api(home, port) as second:
        opened = second.store.now()

        def beaten() -> bool:
            with second.store.reading() as connection:
                return bool(connection.execute(select(jobs.c.heartbeat)).scalar_one() > opened)

        until(beaten, "a heartbeat after the api came back")
    assert heart.failure is None
    assert not stop.is_set()


def test_heartbeats_continue_after_a_connection_stops_responding(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.pipeline.heartbeat.FRESH_SECONDS", 0.3)
    network, stop = Network(api.port, seed=1, silent=3600), threading.Event()
    with network.serving() as url, PipelineClient(url, key=KEY, timeout=3600) as client:
        client.register(RegisterJob(registration_id="the-pipeline", kind="pipeline", hostname="here", pid=1, project="flights"))
        network.mode = "drop"
        with JobHeartbeat(client, 0.01, stop) as heart:
            until(lambda: network.did["drop"] > 0, "a heartbeat is lost")
            network.mode = CALM
            until(lambda: heart._confirmed > 0, "a later one arrives on another connection")
    assert heart.failure is None
