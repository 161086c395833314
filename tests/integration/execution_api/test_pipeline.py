"""The calls of a driver over HTTP: pages of the log, cursor of its scope, plans and ordering state, runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from headrace.client.pipeline import PipelineClient
from headrace.errors import ApiRefused, Fenced
from headrace.store.tables.pipelines import runs
from headrace.wire.calls import execution as calls
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.custody.events import Cursor, ScopeReport
from headrace.wire.log import HEAD_HEADER, LOG_SCHEMA
from headrace.wire.pipelines.plans import Plan
from headrace.wire.pipelines.runs import BatchEnded, RunReport
from support.pipelines.plans import planned
from support.processes.calls import acquire_scope
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import DATABASES, declaration, event, holder, registration


@pytest.fixture(params=DATABASES)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path, kind=request.param) as running:
        yield running


@pytest.fixture
def client(api: Api) -> Iterator[PipelineClient]:
    with PipelineClient(api.url, key=KEY) as made:
        made.register(registration("pipeline"))
        yield made


def test_log_pages_have_the_stored_events(client: PipelineClient, api: Api) -> None:
    holder(api.store, "first", "second").append(*(event(f"{n}", 1, 2) for n in range(10)))
    page = client.page(after=0, scope="s")
    assert page.table.schema.equals(LOG_SCHEMA)
    assert page.head == client.request(calls.GET_LOG_HEAD, None).head == 10
    assert page.table.equals(api.store.log.page(after=0).table)
    assert [table.num_rows for table in client.pages(after=1, to=9, limit=3)] == [3, 3, 2]
    assert list(client.pages(after=10, to=20)) == []


def test_the_log_is_available_as_json(client: PipelineClient, api: Api) -> None:
    owner = holder(api.store, "first")
    owner.append(event("a", payload='{"big": 12345678901234567890}'), event("b", follows="a", occurred=datetime(2026, 1, 1, tzinfo=UTC)))
    response = api.ask("GET", "/execution/events?after=0&format=json", token=client.token)
    body = msgspec.json.decode(response.content)
    assert (response.headers[HEAD_HEADER], body["head"]) == ("2", 2)
    assert [row["payload"] for row in body["events"]] == ['{"big": 12345678901234567890}', "{}"]
    assert body["events"][1]["leader_key"] == body["events"][0]["key"]
    assert body["events"][1]["occurred"] == "2026-01-01T00:00:00.000000Z"


def test_another_process_reads_the_log_with_the_token_of_the_job(client: PipelineClient, api: Api) -> None:
    holder(api.store, "first").append(event("a"))
    with PipelineClient(api.url, token=client.token) as reader:
        assert reader.page(after=0).table.num_rows == 1
        with pytest.raises(ApiRefused, match="not registered"):
            reader.heartbeat()


def test_a_run_without_a_plan_is_reported(client: PipelineClient, api: Api) -> None:
    client.report([RunReport(run_id="r", pipeline="p", scope="s", batch=1, state="running", started=datetime.now(UTC))])
    client.report([])
    with api.store.reading() as connection:
        assert connection.execute(select(runs.c.run_id)).scalars().all() == ["r"]


def test_a_plan_is_stored_and_read_back_by_the_next_driver(client: PipelineClient, api: Api) -> None:
    holder(api.store, "first").append(*(event(f"{n}") for n in range(5)))
    scope = "a scope/of mine"
    lease = acquire_scope(client, scope, None)
    assert (lease.cursor, lease.begin_seq, lease.epoch) == (Cursor(cursor=5, batch=0, low_watermark=5, report=ScopeReport()), 5, 1)
    cursor = Cursor(cursor=5, batch=1, waiting=2, low_watermark=3, report=ScopeReport(lookback=60))
    runs = [planned(0, 0, pipeline="a"), planned(1, 0, pipeline="b", part="2"), planned(2, 1, pipeline="b", table="t")]
    state: dict[str, bytes | None] = {"scope": bytes(range(256)), "order/w/1": b""}
    for _ in range(2):
        client.plan(scope, Plan(epoch=1, cursor=cursor, runs=runs, slices=[b"\xff\xfe", b""], state=state))
    started = datetime.now(UTC)
    told: dict[str, Any] = {"pipeline": "p", "scope": scope, "batch": 1, "started": started}
    over = RunReport(run_id="r0", number=0, state="succeeded", **told)
    for _ in range(2):
        client.report([over, RunReport(run_id="r1", number=1, state="running", **told)], BatchEnded(scope=scope, read=5, seconds=0.5))
    with PipelineClient(api.url, key=KEY) as second:
        second.register(registration("pipeline"))
        with pytest.raises(ApiRefused, match="held by job"):
            acquire_scope(second, scope)
        client.complete(CompleteJob(state="failed"))
        again = acquire_scope(second, scope)
        assert (again.incarnation, again.begin_seq, again.epoch) == (lease.incarnation, 5, 2)
        assert again.cursor == cursor.model_copy(update={"report": ScopeReport(lookback=60, read=5, seconds=0.5)})
        assert second.state(scope) == state
        found = [
            (run.batch, run.number, run.pipeline, run.part, run.table, run.begun, run.ended, run.data) for run in second.open_runs(scope)
        ]
        assert found == [(1, 1, "b", "2", None, 1, 0, b"\xff\xfe"), (1, 2, "b", "", "t", 0, 0, b"")]


def test_large_states_and_slices_are_read_in_pages(client: PipelineClient, api: Api) -> None:
    acquire_scope(client, "s")
    keys = {f"order/w/{number:012d}": bytes([number]) * 1_500_000 for number in range(14)}
    for batch, some in enumerate((sorted(keys)[:7], sorted(keys)[7:]), start=1):
        state: dict[str, bytes | None] = {key: keys[key] for key in some}
        client.plan("s", Plan(epoch=1, cursor=Cursor(cursor=0, batch=batch), state=state))
    assert client.state("s") == keys
    data = [bytes([number]) * 3_000_000 for number in range(3)]
    for batch in (3, 4):
        runs = [planned(number, number) for number in range(3)]
        client.plan("s", Plan(epoch=1, cursor=Cursor(cursor=0, batch=batch), runs=runs, slices=data))
    assert [(run.batch, run.number, run.data) for run in client.open_runs("s")] == [
        (batch, number, data[number]) for batch in (3, 4) for number in range(3)
    ]
    for path in ("state?after=", "runs?batch=0&number=0"):
        answer = api.ask("GET", f"/execution/scopes/s/{path}", token=client.token)
        assert 8_000_000 < len(answer.content) < 12_000_000


@pytest.mark.parametrize(
    ("path", "body", "status", "slug"),
    [
        ("plans", {"epoch": 1, "cursor": {"cursor": 1, "batch": 3}}, 409, "conflict"),
        ("plans", {"epoch": 2, "cursor": {"cursor": 1, "batch": 1}}, 409, "fenced"),
        ("plans", {"epoch": 1, "cursor": {"cursor": 1, "batch": 1}, "slices": ["AA=="]}, 422, "invalid"),
        ("plans", {"epoch": 1, "cursor": {"cursor": 1, "batch": 1}, "state": {"k": "no base64!"}}, 422, "invalid"),
        ("lease", {"begin": 2}, 422, "invalid"),
        ("lease", {"begin": -1}, 422, "invalid"),
    ],
)
def test_an_invalid_plan_or_scope_request_is_refused_with_a_problem(
    client: PipelineClient, api: Api, path: str, body: dict[str, Any], status: int, slug: str
) -> None:
    acquire_scope(client, "s")
    scope = "s" if path == "plans" else "new"
    answer = api.ask("POST", f"/execution/scopes/{scope}/{path}", token=client.token, json=body)
    assert (answer.status_code, answer.json()["type"].rpartition("/")[2].rpartition(":")[2]) == (status, slug), answer.text
    assert acquire_scope(client, "s").cursor.batch == 0


def test_a_driver_declares_sends_heartbeats_and_is_fenced_after_its_end(client: PipelineClient) -> None:
    assert client.declare("flights", declaration("first", pipelines=["p"])).triggers == {"first": 1}
    assert client.heartbeat().desired_state == "run"
    client.complete(CompleteJob(state="succeeded"))
    for ask in (
        lambda: client.request(calls.GET_LOG_HEAD, None),
        lambda: client.page(after=0),
        lambda: acquire_scope(client, "s"),
        client.heartbeat,
    ):
        with pytest.raises(Fenced):
            ask()
