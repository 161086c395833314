"""`headrace upstreams list` on a real API server: readers, positions, lag and problems, on both databases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from headrace.cli import rendering
from headrace.cli.main import app
from headrace.core.ledger.counters import StreamCounters
from headrace.wire.control.jobs import CompleteJob, Heartbeat
from headrace.wire.control.streams import LaneReport, StreamReport
from headrace.wire.control.triggers import DeclaredTrigger, DeclareProject, StreamFailure
from headrace.wire.status.upstreams import UpstreamList, UpstreamStatus
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import Holder, registration
from support.sources.custody import receipt, record

KAFKA = "kafka:main/shop/orders"
QUEUE = "queue:/var/orders.queue"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def api(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with serving(tmp_path, kind=request.param) as running:
        monkeypatch.setenv("HEADRACE_API_URL", running.url)
        monkeypatch.setenv("HEADRACE_KEY", KEY)
        yield running


@pytest.fixture
def owner(api: Api) -> Holder:
    """Return a triggerer of a project with triggers on two upstreams, one that polls alone, and one that no triggerer serves."""
    job = api.store.jobs.register(registration())
    streams = {"paid": KAFKA, "open": KAFKA, "sent": QUEUE, "alone": None, "large": "my source"}
    declared = [
        DeclaredTrigger(name=name, classpath="a.Trigger", kwargs={}, stream=stream, queue="gpu" if name == "large" else "default")
        for name, stream in streams.items()
    ]
    api.store.projects.declare(job.id, "flights", DeclareProject(triggers=declared, pipelines=[]))
    held = Holder(api.store, job.id, {})
    held.load()
    return held


def headrace(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def listed() -> dict[str, UpstreamStatus]:
    result = headrace("upstreams", "list", "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    return {one.stream: one for one in UpstreamList.model_validate_json(result.stdout).upstreams}


def report(**fields: Any) -> StreamReport:
    lanes = [LaneReport(lane="orders/0", read=9, advanced=4, end=20), LaneReport(lane="orders/1", read=2, advanced=2, end=2)]
    counters = StreamCounters(read=12, advanced=7)
    given: dict[str, Any] = {"stream": KAFKA, "state": "polling", "counters": counters, "lanes_open": 2, "lanes": lanes}
    return StreamReport(**given | fields)


def beat(owner: Holder, **fields: Any) -> None:
    owner.store.jobs.heartbeat(owner.job_id, Heartbeat(streams=[report(**fields)]))


def test_without_declared_upstreams_the_message_says_what_to_do(api: Api) -> None:
    result = headrace("upstreams")
    assert (result.exit_code, "No project declares an upstream." in result.stdout) == (0, True)
    assert "headrace triggerer" in result.stdout
    assert listed() == {}


def test_each_upstream_has_its_reader_or_the_reason_why_it_is_not_read(owner: Holder) -> None:
    streams = listed()
    assert list(streams) == [KAFKA, "my source", QUEUE]
    kafka, own = streams[KAFKA], streams["my source"]
    assert (kafka.kind, kafka.projects, kafka.triggers, kafka.job_id, kafka.state) == ("kafka", ["flights"], 2, owner.job_id, "starting")
    assert (own.kind, own.job_id, own.unread_because) == (None, None, "no triggerer serves queue gpu")
    assert (kafka.lag, kafka.lanes, kafka.problems) == (None, [], [])


def test_the_lag_counts_unread_and_outstanding_messages(owner: Holder) -> None:
    record(owner, receipt(None, 4, 5, lane="orders/0", stream=KAFKA))
    beat(owner, unread=11, outstanding=5)
    kafka = listed()[KAFKA]
    assert (kafka.state, kafka.lag, kafka.unread, kafka.outstanding, kafka.lanes_open) == ("polling", 16, 11, 5, 2)
    assert [(lane.lane, lane.stored, lane.advanced, lane.end) for lane in kafka.lanes] == [("orders/0", 4, 4, 20), ("orders/1", None, 2, 2)]
    beat(owner, unread=None, outstanding=5)
    assert (listed()[KAFKA].lag, listed()[KAFKA].outstanding) == (None, 5)


def test_a_drained_upstream_has_its_recorded_positions(owner: Holder) -> None:
    """A stream reports only lanes with raw events in process."""
    record(owner, receipt(None, 4, 5, lane="orders/0", stream=KAFKA), receipt(None, 7, 8, lane="orders/1", stream=KAFKA))
    for unread, advanced in ((0, [4, 7]), (3, [None, None]), (None, [None, None])):
        beat(owner, unread=unread, outstanding=0, lanes=[], lanes_open=0)
        kafka = listed()[KAFKA]
        assert [(lane.lane, lane.stored) for lane in kafka.lanes] == [("orders/0", 4), ("orders/1", 7)]
        assert [lane.advanced for lane in kafka.lanes] == advanced
        assert (kafka.lanes_open, kafka.lanes_recorded) == (0, 2)
    beat(owner, unread=0, outstanding=1, lanes=[LaneReport(lane="orders/1", read=8, advanced=7)], lanes_open=1)
    assert [(lane.lane, lane.stored, lane.advanced) for lane in listed()[KAFKA].lanes] == [("orders/1", 7, 7), ("orders/0", 4, None)]
    for number in range(25):
        record(owner, receipt(None, 1, 1, lane=f"orders/{number + 2}", stream=KAFKA))
    assert (len(listed()[KAFKA].lanes), listed()[KAFKA].lanes_recorded) == (20, 27)


def test_positions_stay_and_the_lag_is_unknown_when_the_triggerer_ended(owner: Holder) -> None:
    beat(owner, unread=11, outstanding=5)
    owner.store.jobs.complete(owner.job_id, CompleteJob(state="failed"))
    kafka = listed()[KAFKA]
    assert (kafka.state, kafka.job_id, kafka.lag, kafka.unread, kafka.outstanding) == ("stopped", None, None, None, 0)
    assert kafka.unread_because
    assert kafka.lanes[0].advanced == 4
    successor = Holder(owner.store, owner.store.jobs.register(registration()).id, {})
    successor.load()
    kafka = listed()[KAFKA]
    assert (kafka.job_id, kafka.state, kafka.lag) == (successor.job_id, "starting", None)


def test_a_silent_triggerer_is_named_and_its_lag_is_unknown(api: Api, owner: Holder) -> None:
    beat(owner, unread=11, outstanding=5)
    api.clock.turn(3600)
    kafka = listed()[KAFKA]
    assert (kafka.job_id, kafka.state, kafka.lag) == (owner.job_id, "silent", None)
    assert kafka.unread_because == f"triggerer {owner.job_id} sends no heartbeats"
    beat(owner, unread=11, outstanding=5)
    assert (listed()[KAFKA].state, listed()[KAFKA].lag) == ("polling", 16)


def test_problems_of_lanes_and_failed_streams_are_named(owner: Holder) -> None:
    lanes = [LaneReport(lane="orders/0", error="Messages 5 to 9 are missing.")]
    beat(owner, lanes=lanes)
    epochs = {one: owner.epochs[one] for one in list(owner.epochs)[:2]}
    failure = StreamFailure(report="report-1", epochs=epochs, type="StreamError", message="The brokers do not answer.")
    owner.store.triggers.stream_failure(owner.job_id, failure)
    problems = [text for one in listed().values() for text in one.problems]
    assert "orders/0: Messages 5 to 9 are missing." in problems
    assert any("failed: StreamError: The brokers do not answer." in text for text in problems)


def test_the_list_fits_100_columns_of_a_terminal(owner: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    beat(owner, unread=11, outstanding=5, lanes=[LaneReport(lane="l" * 150, error="e" * 150, read=2**62, advanced=2**62)])
    with Path("/dev/null").open("w") as nowhere:
        console = Console(width=100, force_terminal=True, file=nowhere, record=True)
        monkeypatch.setattr(rendering, "out", console)
        assert headrace("upstreams").exit_code == 0
        lines = console.export_text().splitlines()
    assert lines
    assert max(map(len, lines)) <= 100
    assert any("16" in line for line in lines)


def test_pages_follow_the_names(api: Api, owner: Holder) -> None:
    first = api.ask("GET", "/api/v1/upstreams?limit=2").json()
    second = api.ask("GET", "/api/v1/upstreams", params={"limit": 2, "after": first["after"]}).json()
    assert [one["stream"] for page in (first, second) for one in page["upstreams"]] == [KAFKA, "my source", QUEUE]
    assert second["after"] is None


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, api: Api) -> None:
    result = api.run("upstreams", "list", "--api-url", "http://127.0.0.1:1")
    assert (result.returncode, "127.0.0.1:1" in result.stderr, "Traceback" in result.stderr) == (1, True, False)


def test_the_json_has_the_kind_of_each(owner: Holder) -> None:
    upstreams = json.loads(headrace("upstreams", "list", "--json").stdout)["upstreams"]
    assert [one["kind"] for one in upstreams] == ["kafka", None, "queue"]
