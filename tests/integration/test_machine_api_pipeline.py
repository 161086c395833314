"""What a pipeline asks of the api, over HTTP: the log in pages, its scope's cursor, its runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import select

from headrace.client.pipeline import PipelineClient
from headrace.errors import ApiRefused, Fenced
from headrace.store.tables import runs
from headrace.wire.events import Cursor
from headrace.wire.jobs import CompleteJob
from headrace.wire.log import HEAD_HEADER, LOG_SCHEMA
from headrace.wire.runs import RunReport
from machine_kit import KEY, Api, serving
from store_kit import DATABASES, declaration, event, holder, registration


@pytest.fixture(params=DATABASES)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path, kind=request.param) as running:
        yield running


@pytest.fixture
def client(api: Api) -> Iterator[PipelineClient]:
    with PipelineClient(api.url, key=KEY) as made:
        made.register(registration("pipeline"))
        yield made


def test_the_log_is_read_as_it_was_stored(client: PipelineClient, api: Api) -> None:
    holder(api.store, "first", "second").append(*(event(f"{n}", 1, 2) for n in range(10)))
    page = client.page(after=0, scope="s")
    assert page.table.schema.equals(LOG_SCHEMA)
    assert page.head == client.head().head == 10
    assert page.table.equals(api.store.log.page(after=0).table)
    assert [table.num_rows for table in client.pages(after=1, to=9, limit=3)] == [3, 3, 2]
    assert list(client.pages(after=10, to=20)) == []


def test_the_log_is_given_as_json_too(client: PipelineClient, api: Api) -> None:
    owner = holder(api.store, "first")
    owner.append(event("a", payload='{"big": 12345678901234567890}'), event("b", follows="a", occurred=datetime(2026, 1, 1, tzinfo=UTC)))
    response = api.ask("GET", "/execution/events?after=0&format=json", token=client.token)
    body = msgspec.json.decode(response.content)
    assert (response.headers[HEAD_HEADER], body["head"]) == ("2", 2)
    assert [row["payload"] for row in body["events"]] == ['{"big": 12345678901234567890}', "{}"]
    assert body["events"][1]["leader_key"] == body["events"][0]["key"]
    assert body["events"][1]["occurred"] == "2026-01-01T00:00:00.000000Z"


def test_a_reader_elsewhere_gets_by_with_the_token(client: PipelineClient, api: Api) -> None:
    holder(api.store, "first").append(event("a"))
    with PipelineClient(api.url, token=client.token) as reader:
        assert reader.page(after=0).table.num_rows == 1
        with pytest.raises(ApiRefused, match="not registered"):
            reader.heartbeat()


def test_a_scope_commits_and_a_run_is_reported(client: PipelineClient, api: Api) -> None:
    assert client.cursor("a scope/of mine").cursor == 0
    client.commit("a scope/of mine", Cursor(cursor=4, batch=1, waiting=2))
    told = client.cursor("a scope/of mine")
    assert (told.cursor, told.batch, told.waiting) == (4, 1, 2)
    client.report([RunReport(run_id="r", pipeline="p", scope="s", batch=1, state="running", started=datetime.now(UTC))])
    client.report([])
    with api.store.reading() as connection:
        assert connection.execute(select(runs.c.run_id)).scalars().all() == ["r"]


def test_a_pipeline_declares_and_lives_like_any_job(client: PipelineClient) -> None:
    assert client.declare("flights", declaration("first", pipelines=["p"])).triggers == {"first": 1}
    assert client.heartbeat().wanted == "run"
    client.complete(CompleteJob(state="succeeded"))
    for ask in (client.head, lambda: client.page(after=0), lambda: client.cursor("s"), client.heartbeat):
        with pytest.raises(Fenced):
            ask()
