"""The admin API over a real store, fed through the execution API by its own clients."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.api.admin.live_status import LiveStatus, RateMeter
from headrace.api.app import create_app
from headrace.client.triggerer import TriggererClient
from headrace.core.ledger.counters import StreamCounters
from headrace.errors import StorageBusy
from headrace.store import Liveness, Store, open_store
from headrace.store.queries import events
from headrace.store.queries.status import Overview, overview
from headrace.wire.control.jobs import CompleteJob, Heartbeat, RegisterJob
from headrace.wire.control.streams import RetryReport, StreamReport
from headrace.wire.custody.events import HOLD_BUCKETS, Cursor, EventBatch
from headrace.wire.custody.receipts import Audit, Receipt
from headrace.wire.problem import PROBLEM_JSON
from headrace.wire.status.status import DeadLetterDetail, DeadLetterPage, EventDetail, EventPage, RunList, Status, StreamList, TriggerList
from support.pipelines.plans import driver, plan, planned
from support.processes.admin_scene import KEY, PROJECT, STREAM, Scene, at_work, opened, run, serving

SCRIPTS = ("page.js", "ordering.js", "parts.js", "detail.js", "words.js")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path) as made:
        yield made


@pytest.fixture
async def scene(store: Store) -> AsyncIterator[Scene]:
    with serving(store) as url:
        async with at_work(url) as made:
            yield made


@pytest.fixture
async def http(scene: Scene) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=scene.url, timeout=60, trust_env=False, verify=False) as client:
        yield client


async def status_of(http: httpx.AsyncClient) -> Status:
    return Status.model_validate_json((await http.get("/api/v1/status")).raise_for_status().content)


async def test_an_empty_deployment_has_an_empty_status(store: Store) -> None:
    transport = httpx.ASGITransport(create_app(store, key=KEY))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        status = await status_of(client)
    assert (status.head, status.events.total, status.events.per_second) == (0, 0, 0.0)
    assert [status.jobs, status.triggers, status.streams, status.scopes, status.pipelines, status.runs, status.recent] == [[]] * 7


async def test_the_status_shows_reports_of_the_execution_api(scene: Scene, http: httpx.AsyncClient) -> None:
    first = scene.leg(1)
    both = replace(scene.leg(2, follows=first.id), firings=[scene.triggers["legs.late"], scene.triggers["legs.united"]])
    await scene.store(first, both, letters=[scene.letter(7, "not JSON")])
    await scene.beat(read=9, advanced=7, oldest=1.5, held_by=f"trigger {scene.triggers['legs.delta']} and 2 more")
    await scene.plan(Cursor(cursor=1, batch=3, ordered=1, waiting=4, lost=2, late=1, cycles=1))
    await scene.report(run(1, rows=30), run(2, state="failed", rows=None, error="it broke"), run(3, pipeline="late_legs", rows=5))
    await scene.fail("legs.delta", "no route")

    status = await status_of(http)

    assert (status.head, status.events.total, status.dead_letters) == (2, 2, 1)
    wanted = {"read": 9, "advanced": 7, "fired": 3, "stored": 2, "waiting": 4, "ordered": 1, "lost": 2, "late": 1, "cycles": 1}
    assert status.totals.model_dump() == wanted | {"runs": 3, "rows": 35, "dead_letters": 1, "backlog": 0}
    triggers = {trigger.name: trigger for trigger in status.triggers}
    assert (triggers["legs.united"].fired, triggers["legs.late"].fired, triggers["legs.united"].rejected) == (2, 1, 1)
    assert (triggers["legs.delta"].state, triggers["legs.delta"].failure) == ("failed", "ConnectionError: no route")
    assert [(scope.scope, scope.cursor, scope.lag, scope.waiting) for scope in status.scopes] == [(PROJECT, 1, 1, 4)]
    assert [(p.name, p.on, p.runs, p.failed, p.events, p.rows) for p in status.pipelines] == [
        ("knock_on_delay", ["legs.*"], 2, 1, 61, 30),
        ("late_legs", ["legs.late"], 1, 0, 63, 5),
    ]
    assert [(event.seq, event.follows, event.leader_seq, event.triggers) for event in status.recent] == [
        (2, first.id, 1, ["legs.late", "legs.united"]),
        (1, None, -1, ["legs.united"]),
    ]
    assert [(job.id, job.kind, job.state) for job in status.jobs] == [(2, "pipeline", "running"), (1, "triggerer", "running")]
    assert [(stream.stream, stream.job_id, stream.held_by, stream.outstanding) for stream in status.streams] == [
        (STREAM, 1, "legs.delta and 2 more", 2)
    ]
    assert [run.state for run in status.runs] == ["succeeded", "failed", "succeeded"]


async def test_events_are_paged_by_seq_in_both_directions(scene: Scene, http: httpx.AsyncClient) -> None:
    await scene.store(*(scene.leg(number) for number in range(1, 8)))

    async def page(**asked: int) -> EventPage:
        return EventPage.model_validate_json((await http.get("/api/v1/events", params=asked)).raise_for_status().content)

    seen: list[int] = []
    before: int | None = 8
    while before is not None:
        found = await page(before=before, limit=3)
        seen += [event.seq for event in found.events]
        before = found.before
    assert seen == [7, 6, 5, 4, 3, 2, 1]
    newest = await page(limit=2)
    assert ([event.seq for event in newest.events], newest.before) == ([7, 6], 6)
    following = await page(after=4, limit=2)
    assert ([event.seq for event in following.events], following.after) == ([5, 6], 6)
    at_end = await page(after=7)
    assert (at_end.events, at_end.after) == ([], 7)
    between = await page(after=2, before=5)
    assert ([event.seq for event in between.events], between.before) == ([4, 3], None)


async def test_events_are_filtered_by_type_and_subject(scene: Scene, http: httpx.AsyncClient) -> None:
    await scene.store(scene.leg(1), scene.leg(2, tail="N1"), replace(scene.leg(3, tail="N1"), type="other"))
    found = EventPage.model_validate_json((await http.get("/api/v1/events", params={"subject": "N1", "type": "flights.leg"})).content)
    assert [event.seq for event in found.events] == [2]


async def test_a_filter_scans_a_bounded_number_of_events_per_page(scene: Scene, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_SCANNED_EVENTS", 2)
    await scene.store(scene.leg(1, tail="rare"), *(scene.leg(number) for number in range(2, 7)))
    with store.reading() as connection:
        first = events.event_page(connection, limit=5, subject="rare")
        assert (first.events, first.before) == ([], 5)
        second = events.event_page(connection, before=3, limit=5, subject="rare")
        assert ([event.seq for event in second.events], second.before) == ([1], None)
        ahead = events.event_page(connection, after=0, limit=5, subject="N14228")
        assert ([event.seq for event in ahead.events], ahead.after) == ([2], 2)


async def test_an_event_is_shown_with_its_unchanged_payload(scene: Scene, http: httpx.AsyncClient) -> None:
    await scene.store(scene.leg(1))
    event = EventDetail.model_validate_json((await http.get("/api/v1/events/1")).content)
    assert '"big": 12345678901234567890' in event.payload
    assert (event.lane, event.position, event.triggers) == ("2013-01-01.jsonl", 211, ["legs.united"])


@pytest.mark.parametrize(
    "path", ["/api/v1/events/99", f"/api/v1/events/{10**30}", "/api/v1/dead-letters/none", "/static/../app.py", "/static/none.js"]
)
async def test_a_missing_resource_is_a_404_problem(http: httpx.AsyncClient, path: str) -> None:
    response = await http.get(path)
    assert (response.status_code, response.headers["content-type"]) == (404, PROBLEM_JSON)


async def test_dead_letters_are_paged_and_shown_with_their_raw_event(scene: Scene, http: httpx.AsyncClient) -> None:
    await scene.store(letters=[scene.letter(number, f"reason {number}") for number in (1, 2, 3)])
    first = DeadLetterPage.model_validate_json((await http.get("/api/v1/dead-letters", params={"limit": 2})).content)
    rest = DeadLetterPage.model_validate_json((await http.get("/api/v1/dead-letters", params={"limit": 2, "before": first.before})).content)
    assert [letter.reason for letter in (*first.dead_letters, *rest.dead_letters)] == ["reason 3", "reason 2", "reason 1"]
    assert rest.before is None
    path = f"/api/v1/dead-letters/{quote(first.dead_letters[0].id, safe='')}"
    letter = DeadLetterDetail.model_validate_json((await http.get(path)).content)
    assert (letter.raw, letter.triggers) == ('{"carrier": "UA", "flight": ', ["legs.united"])


async def test_triggers_streams_and_runs_have_lists_of_their_own(scene: Scene, http: httpx.AsyncClient) -> None:
    await scene.beat(read=3, advanced=3)
    await scene.report(run(1), run(2, pipeline="late_legs"))
    triggers = TriggerList.model_validate_json((await http.get("/api/v1/triggers")).content).triggers
    assert [trigger.name for trigger in triggers] == ["legs.american", "legs.delta", "legs.late", "legs.united"]
    streams = StreamList.model_validate_json((await http.get("/api/v1/streams")).content).streams
    assert [len(stream.lanes) for stream in streams] == [2]
    runs = RunList.model_validate_json((await http.get("/api/v1/runs", params={"pipeline": "late_legs"})).content).runs
    assert [(found.pipeline, found.seqs) for found in runs] == [("late_legs", [(1, 62)])]


async def test_a_retry_is_shown_until_its_job_ends(scene: Scene, http: httpx.AsyncClient) -> None:
    trigger_id = next(iter(scene.epochs))
    retry = RetryReport(trigger_id=trigger_id, lane="a.jsonl", position=3, attempts=2, seconds=9.0, error="ValueError: no")
    await scene.beat(read=10, advanced=10, retrying=[retry])
    status = await status_of(http)
    [found] = status.streams[0].retrying
    name = next(trigger.name for trigger in status.triggers if trigger.id == trigger_id)
    assert (found.trigger, found.attempts, found.seconds) == (name, 2, 9.0)
    assert any(f"trigger {name} failed 2 times in lane a.jsonl" in alert.summary for alert in status.alerts)
    await scene.triggerer.complete(CompleteJob(state="failed"))
    assert (await status_of(http)).streams[0].retrying == []


async def test_the_counters_of_a_stream_outlive_its_job(scene: Scene, http: httpx.AsyncClient) -> None:
    await scene.beat(read=10, advanced=8, oldest=3.0)
    await scene.triggerer.complete(CompleteJob(state="failed"))
    ended = (await status_of(http)).streams[0]
    assert (ended.state, ended.counters.read, ended.outstanding, ended.oldest_unresolved) == ("stopped", 10, 0, None)

    async with TriggererClient(scene.url, key=KEY) as again:
        await again.register(RegisterJob(registration_id="triggerer-2", kind="triggerer", hostname="wheel-2", pid=1, project=PROJECT))
        await again.heartbeat(
            Heartbeat(streams=[StreamReport(stream=STREAM, state="polling", counters=StreamCounters(read=5, advanced=5))])
        )
        status = await status_of(http)
    assert [(stream.state, stream.counters.read, stream.counters.advanced, stream.job_id) for stream in status.streams] == [
        ("polling", 15, 13, 3)
    ]
    assert (status.totals.read, status.totals.advanced) == (15, 13)


def test_a_job_without_heartbeats_is_silent(tmp_path: Path) -> None:
    now = 1_000_000_000
    store = open_store(f"sqlite:///{tmp_path / 'headrace.db'}", clock=lambda: now)
    try:
        store.jobs.register(RegisterJob(registration_id="triggerer-1", kind="triggerer", hostname="wheel", pid=1, project=PROJECT))
        with store.reading() as connection:
            assert [job.state for job in overview(connection, now + 29_000_000, store.liveness).jobs] == ["running"]
            assert [job.state for job in overview(connection, now + 31_000_000, store.liveness).jobs] == ["silent"]
            assert [job.state for job in overview(connection, now + 6_000_000, Liveness(5_000_000)).jobs] == ["silent"]
    finally:
        store.close()


async def test_the_status_query_does_not_scan_the_log(scene: Scene, store: Store) -> None:
    await scene.store(scene.leg(1))
    asked: list[str] = []
    with store.reading() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)
        raw.set_trace_callback(asked.append)
        overview(connection, store.now(), store.liveness)
        raw.set_trace_callback(None)
        reads = [statement for statement in asked if statement.lstrip().startswith("SELECT")]
        plans = [str(step[3]) for statement in reads for step in raw.execute(f"EXPLAIN QUERY PLAN {statement}")]
    assert any(plan.startswith("SEARCH events") for plan in plans)
    assert [plan for plan in plans if plan.startswith(("SCAN events", "SCAN firings"))] == []


async def test_health_shows_the_schema_revision(scene: Scene, http: httpx.AsyncClient, tmp_path: Path) -> None:
    healthy = await http.get("/healthz")
    assert (healthy.status_code, healthy.json()["status"], bool(healthy.json()["schema_revision"])) == (200, "ok", True)


async def test_health_fails_without_a_schema(store: Store, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "headrace.db") as connection:
        connection.execute("DROP TABLE alembic_version")
    connection.close()
    transport = httpx.ASGITransport(create_app(store, key=KEY))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        failing = await client.get("/healthz")
    assert (failing.status_code, failing.json()["status"]) == (503, "failing")


async def test_metrics_are_prometheus_with_few_labels(scene: Scene, store: Store, http: httpx.AsyncClient) -> None:
    job = driver(store)
    store.scope_leases.acquire(job, "s")
    store.plans.store(job, "s", plan(1, planned(0), planned(1)))
    await scene.store(scene.leg(1), scene.leg(2))
    await scene.beat(read=9, advanced=7, oldest=1.5)
    await scene.plan(Cursor(cursor=1, batch=3, ordered=1, waiting=1))
    await scene.report(run(1, rows=30))
    response = await http.get("/metrics")
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }
    assert samples["headrace_events_stored_total", ()] == 2
    assert samples["headrace_trigger_fired_total", (("trigger", "legs.united"),)] == 2
    assert samples["headrace_stream_oldest_unresolved_seconds", (("stream", STREAM),)] == 1.5
    assert samples["headrace_scope_lag", (("scope", PROJECT),)] == 1
    assert [samples["headrace_scope_open_runs", (("scope", scope),)] for scope in ("s", PROJECT)] == [2, 0]
    assert samples["headrace_pipeline_rows_total", (("pipeline", "knock_on_delay"),)] == 30
    assert samples["headrace_jobs", (("kind", "triggerer"),)] == 1
    labels = {label for _, pairs in samples for label, _ in pairs}
    assert labels == {"stream", "trigger", "scope", "pipeline", "kind", "version", "state", "severity", "le"}
    assert all(name.startswith("headrace_") for name, _ in samples)


async def test_metrics_count_backlogs_advances_and_dead_letters(scene: Scene, store: Store, http: httpx.AsyncClient) -> None:
    await scene.spill(3, watch="legs.delta")
    await scene.store(letters=[scene.letter(7, "not JSON")])
    await scene.beat(read=9, advanced=7, end=60_000, error="TimeoutError")
    response = await http.get("/metrics")
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }
    assert samples["headrace_backlog_depth", "legs.delta"] == 3
    assert samples["headrace_backlog_depth", "legs.late"] == 0
    assert samples["headrace_trigger_spilled_total", "legs.delta"] == 3
    wanted = {"spilled": 3, "resolved": 7, "ack_seconds": 1.75, "advances": 8, "advance_errors": 4, "advance_seconds": 0.2}
    assert {name: samples[f"headrace_stream_{name}_total", STREAM] for name in wanted} == wanted
    assert samples["headrace_stream_lag", STREAM] == 60_000 - 52_310
    assert samples["headrace_stream_advances_in_flight", STREAM] == 1
    assert [samples["headrace_dead_letters", state] for state in ("open", "redriven", "discarded")] == [1, 0, 0]
    status = await status_of(http)
    assert [(kept.trigger, kept.stream, kept.depth, kept.oldest is not None) for kept in status.backlogs] == [
        ("legs.delta", STREAM, 3, True)
    ]
    await scene.settle(watch="legs.delta")
    assert (await status_of(http)).backlogs == []
    await scene.triggerer.complete(CompleteJob(state="succeeded"))
    ended = (await status_of(http)).streams[0]
    assert (ended.state, ended.in_flight, ended.counters.advances, ended.counters.ack_seconds) == ("stopped", 0, 8, 1.75)


async def test_the_audit_reports_missing_receipts(scene: Scene, http: httpx.AsyncClient) -> None:
    receipt = Receipt(stream=STREAM, lane="2013-01-02.jsonl", after=None, last=5, read=6, owed=list(scene.epochs), answers=[])
    await scene.triggerer.store(EventBatch(epochs=scene.epochs, receipts=[receipt]))
    clean = Audit.model_validate_json((await http.get("/api/v1/audit")).raise_for_status().content)
    assert (clean.clean, clean.streams[0].read, len(clean.streams[0].triggers)) == (True, 6, 4)
    await scene.beat(read=9, advanced=7)  # says that a lane was advanced further than that
    ahead = Audit.model_validate_json((await http.get("/api/v1/audit", params={"stream": STREAM})).raise_for_status().content)
    assert not ahead.clean
    assert [(one.lane, one.recorded) for one in ahead.streams[0].problems] == [("2013-01-01.jsonl", None), ("2013-01-02.jsonl", 5)]


async def test_the_stream_sends_the_status_and_then_each_change(scene: Scene, http: httpx.AsyncClient) -> None:
    async with http.stream("GET", "/api/v1/stream") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.aiter_lines()

        async def next_status() -> Status:
            async for line in lines:
                if line.startswith('data: {"version"'):
                    return Status.model_validate_json(line.removeprefix("data: "))
            raise AssertionError("the stream ended")

        assert (await next_status()).head == 0
        await scene.store(scene.leg(1))
        changed = await next_status()
        while changed.head == 0:
            changed = await next_status()
        assert [event.seq for event in changed.recent] == [1]


class CountedLive(LiveStatus):
    """Counts how often the database is asked."""

    reads = 0

    def _read(self) -> Overview:
        self.reads += 1
        return super()._read()


async def test_concurrent_readers_share_one_status_snapshot(store: Store) -> None:
    live = CountedLive(store, clock=lambda: 100.0)
    watchers = [live.frames() for _ in range(20)]
    frames = await asyncio.gather(*(anext(watcher) for watcher in watchers))
    assert live.reads == 1
    assert len(set(frames)) == 1
    for watcher in watchers:
        await watcher.aclose()


class BrokenLive(LiveStatus):
    """A status over a database that does not answer."""

    def _read(self) -> Overview:
        raise StorageBusy("The database does not answer.")


async def test_a_database_failure_ends_the_status_stream_without_an_error(store: Store) -> None:
    assert [frame async for frame in BrokenLive(store).frames()] == []


async def test_closing_ends_every_status_stream(store: Store) -> None:
    live = LiveStatus(store)
    watchers = [live.frames() for _ in range(3)]
    for watcher in watchers:
        await anext(watcher)
    ends = [asyncio.create_task(anext(watcher, None)) for watcher in watchers]
    live.close()
    assert await asyncio.gather(*ends) == [None, None, None]


def test_the_rate_is_the_growth_over_the_last_seconds() -> None:
    speed = RateMeter(over=10)
    assert speed.sample(0, 100) == 0
    assert speed.sample(5, 150) == 10
    assert speed.sample(10, 150) == 5
    assert speed.sample(15, 150) == 0


async def test_the_status_page_loads_only_its_own_files(store: Store) -> None:
    transport = httpx.ASGITransport(create_app(store, key=KEY))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        page = await client.get("/")
        again = await client.get("/", headers={"If-None-Match": page.headers["etag"]})
        files = {name: await client.get(f"/static/{name}") for name in (*SCRIPTS, "page.css", "icon.svg")}
    assert again.status_code == 304
    for response in (page, *files.values()):
        assert response.status_code == 200
        policy = dict(part.strip().split(" ", 1) for part in response.headers["content-security-policy"].split(";"))
        assert (policy["default-src"], policy["script-src"], policy["style-src"]) == ("'none'", "'self'", "'self'")
        assert response.headers["x-content-type-options"] == "nosniff"
        assert not {"http://", "https://"} & set(response.text.replace("http://www.w3.org/2000/svg", "").split('"'))
    script = "".join(files[name].text for name in SCRIPTS)
    assert not [way for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(") if way in script]
    assert f"const BOUNDS = [{', '.join(f'{bound:g}' for bound in HOLD_BUCKETS)}];" in script
    assert " style=" not in page.text
    assert "onclick" not in page.text
