"""What the admin API shows of scopes and runs: waits and leaders, the running batch, hold times, and the runs of an event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.client.pipeline import PipelineClient
from headrace.core.values.moments import moment
from headrace.wire.control.jobs import CompleteJob, Heartbeat, RunningBatch
from headrace.wire.custody.events import HOLD_BUCKETS, Cursor, ScopeReport, WaitingEvent
from headrace.wire.pipelines.runs import BatchEnded, RunReport
from headrace.wire.pipelines.scopes import ScopeList, ScopeStatus, WaitPage
from headrace.wire.status.status import EventDetail, EventPage, Status
from support.pipelines.plans import plan_next
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import DATABASES, Holder, event, holder, registration

SCOPE = "a scope/of mine"
HOLDS = [0, 0, 2, 0, 1, 0, 0, 0]


@pytest.fixture(params=DATABASES)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path, kind=request.param, webhook_allow_private=True) as running:
        yield running


@pytest.fixture
def owner(api: Api) -> Holder:
    return holder(api.store, "legs")


@pytest.fixture
def driver(api: Api) -> Iterator[PipelineClient]:
    with PipelineClient(api.url, key=KEY) as made:
        made.register(registration("pipeline"))
        yield made


def read(api: Api, path: str, **params: Any) -> bytes:
    return api.ask("GET", path, token=None, params=params).raise_for_status().content


def waiting(api: Api, scope: str = SCOPE, **params: int) -> WaitPage:
    return WaitPage.model_validate_json(read(api, f"/api/v1/scopes/{scope}/waiting", **params))


def listed(api: Api) -> ScopeStatus:
    (found,) = ScopeList.model_validate_json(read(api, "/api/v1/scopes")).scopes
    return found


def scope(api: Api) -> ScopeStatus:
    found = listed(api)
    assert Status.model_validate_json(read(api, "/api/v1/status")).scopes == [found]
    return found


def reported(*waits: tuple[int, float], batch: int = 1, lookback: float | None = 900, **other: Any) -> Cursor:
    events = [WaitingEvent(seq=seq, seconds=seconds) for seq, seconds in waits]
    report = ScopeReport(waits=events, lookback=lookback, holds=HOLDS, hold_seconds=37.5, read=400, seconds=0.5)
    return Cursor(cursor=3, batch=batch, waiting=len(waits), report=report, **other)


def test_waits_have_leader_start_and_lookback_end(api: Api, owner: Holder, driver: PipelineClient) -> None:
    owner.append(event("c", follows="b", subject="N1"), event("b", follows="a"), event("x"))
    plan_next(driver, SCOPE, reported((1, 12), (2, 7)))
    now = moment(api.clock.now)
    shown = scope(api)
    assert shown.waiting_since == now - timedelta(seconds=12)
    for first, second in (waiting(api).waits, shown.waits[::-1]):  # what misses its leader is shown first
        assert (first.seq, first.id, first.subject, first.follows, first.leader, first.lost_at) == (1, "c", "N1", "b", "waiting", None)
        assert (second.id, second.follows, second.leader) == ("b", "a", "missing")
        assert (first.since, second.since) == (now - timedelta(seconds=12), now - timedelta(seconds=7))
        assert second.lost_at == now + timedelta(seconds=893)
    assert [(page.waits[0].seq, page.after) for page in (waiting(api, limit=1), waiting(api, limit=1, after=1))] == [(1, 1), (2, None)]
    owner.append(event("a"))
    assert [wait.leader for wait in waiting(api).waits] == ["waiting", "waiting"]
    assert api.ask("GET", "/api/v1/scopes/unknown/waiting").status_code == 404


def test_scope_time_stops_with_the_scope(api: Api, owner: Holder, driver: PipelineClient) -> None:
    owner.append(event("b", follows="a"))
    plan_next(driver, SCOPE, reported((1, 0)))
    began = moment(api.clock.now)
    api.clock.turn(3)
    assert waiting(api).at == began + timedelta(seconds=3)
    api.clock.turn(60)  # as in a batch that takes a minute: the scope's clock goes on by one step
    assert waiting(api).at == scope(api).clock_until == began + timedelta(seconds=5)
    driver.complete(CompleteJob(state="succeeded"))
    assert waiting(api).at == scope(api).clock_until == began


def test_a_batch_is_shown_while_its_runs_are_open(api: Api, owner: Holder, driver: PipelineClient) -> None:
    owner.append(event("1"))
    plan_next(driver, SCOPE, Cursor(cursor=0, batch=0))
    batch = plan_next(driver, SCOPE, Cursor(cursor=1, batch=0), run_of="legs")
    driver.heartbeat(Heartbeat(batch=RunningBatch(scope=SCOPE, batch=batch, events=5_000, seconds=3)))
    batch_now = scope(api).running_batch
    assert batch_now is not None
    assert (batch_now.batch, batch_now.events, batch_now.since) == (batch, 5_000, moment(api.clock.now) - timedelta(seconds=3))
    assert (scope(api).cursor, scope(api).lag, scope(api).behind_since is None) == (1, 1, False)
    run = {"run_id": "r", "pipeline": "legs", "scope": SCOPE, "batch": batch, "number": 0, "started": moment(api.clock.now)}
    driver.report([RunReport.model_validate({**run, "state": "succeeded"})], BatchEnded(scope=SCOPE, read=400, seconds=0.5))
    shown = scope(api)
    assert (shown.running_batch, shown.read, shown.seconds, shown.lag, shown.behind_since) == (None, 400, 0.5, 0, None)
    plan_next(driver, SCOPE, Cursor(cursor=1, batch=0, report=ScopeReport()))
    assert (scope(api).read, scope(api).seconds) == (400, 0.5)  # of the last one that read anything
    plan_next(driver, SCOPE, Cursor(cursor=1, batch=0), run_of="legs")
    driver.heartbeat(Heartbeat(batch=RunningBatch(scope=SCOPE, batch=batch + 2, events=1, seconds=0)))
    assert scope(api).running_batch is not None
    driver.complete(CompleteJob(state="succeeded"))
    assert scope(api).running_batch is None


def test_a_scope_is_running_with_its_driver_or_a_waiting_driver_of_its_project(api: Api, driver: PipelineClient) -> None:
    def started(**other: Any) -> int:
        return api.store.jobs.register(registration("pipeline", **other)).id

    def ended(*jobs: int) -> None:
        for job in jobs:
            api.store.jobs.complete(job, CompleteJob(state="succeeded"))

    began = moment(api.clock.now)
    plan_next(driver, SCOPE, reported())
    api.clock.turn(10)
    waits = started()
    assert scope(api).running_since == began, "its holder counts before a driver that waits"
    driver.complete(CompleteJob(state="succeeded"))
    assert scope(api).running_since == began + timedelta(seconds=10)
    ended(waits)
    busy, others, named = started(), started(project="another"), started(project=SCOPE)
    api.store.scope_leases.acquire(busy, "quiet")
    assert {one.scope: one.running_since for one in ScopeList.model_validate_json(read(api, "/api/v1/scopes")).scopes} == {
        SCOPE: None,  # one driver has another scope, and two are of other projects
        "quiet": began + timedelta(seconds=10),
    }
    ended(busy, others, named)


def test_metrics_show_hold_times_and_counters_of_scopes(api: Api, driver: PipelineClient) -> None:
    plan_next(driver, SCOPE, reported((1, 2), ordered=40, lost=3, late=2, cycles=1))
    plan_next(driver, "quiet", Cursor(cursor=0, batch=0))
    families = text_string_to_metric_families(read(api, "/metrics").decode())
    samples = {
        (sample.name, sample.labels.get("le")): sample.value
        for family in families
        for sample in family.samples
        if sample.labels.get("scope") == SCOPE
    }
    wanted = {"waiting": 1, "released_total": 40, "lost_total": 3, "late_total": 2, "cycle_total": 1}
    assert {name: samples[f"headrace_ordering_{name}", None] for name in wanted} == wanted
    buckets = [samples["headrace_ordering_hold_seconds_bucket", bound] for bound in (*map(str, HOLD_BUCKETS), "+Inf")]
    assert buckets == [0, 0, 2, 2, 3, 3, 3, 3]
    assert (samples["headrace_ordering_hold_seconds_sum", None], samples["headrace_ordering_hold_seconds_count", None]) == (37.5, 3)


def run(run_id: str, *seqs: tuple[int, int], minute: int = 0) -> RunReport:
    started = datetime(2026, 1, 1, 12, minute, tzinfo=UTC)
    return RunReport(run_id=run_id, pipeline="delay", scope=SCOPE, batch=1, state="succeeded", started=started, seqs=list(seqs))


def test_runs_list_their_events_and_events_their_runs(api: Api, owner: Holder, driver: PipelineClient) -> None:
    owner.append(*(event(f"{number}") for number in range(1, 10)))
    driver.report([run("flights/all", (1, 9)), run("some", (2, 3), (7, 8), minute=1), run("none", minute=2), run("odd", (2**63, 2**70))])

    def runs_of(seq: int) -> list[str]:
        found = EventDetail.model_validate_json(read(api, f"/api/v1/events/{seq}")).runs
        assert [each.seqs for each in found] == [[]] * len(found)
        return [each.run_id for each in found]

    assert {seq: runs_of(seq) for seq in (1, 2, 5, 8, 9)} == {
        1: ["flights/all"],
        2: ["some", "flights/all"],
        5: ["flights/all"],
        8: ["some", "flights/all"],
        9: ["flights/all"],
    }
    assert RunReport.model_validate_json(read(api, "/api/v1/runs/some")).seqs == [(2, 3), (7, 8)]

    def events_of(run_id: str, **params: int) -> tuple[list[int], int | None]:
        page = EventPage.model_validate_json(read(api, f"/api/v1/runs/{run_id}/events", **params))
        return [each.seq for each in page.events], page.before

    assert events_of("some") == ([8, 7, 3, 2], None)
    assert events_of("some", limit=3) == ([8, 7, 3], 3)
    assert events_of("some", limit=3, before=3) == ([2], None)
    assert events_of("flights/all", limit=4, before=9) == ([8, 7, 6, 5], 5)
    assert events_of("none") == ([], None)
    assert [api.ask("GET", f"/api/v1/runs/{path}").status_code for path in ("unknown", "unknown/events")] == [404, 404]


def until(api: Api, condition: Callable[[ScopeStatus], bool]) -> ScopeStatus:
    for _ in range(2_000):
        found = listed(api)
        if condition(found):
            return found
    raise AssertionError(found)


def test_a_webhook_shows_waiting_events_and_their_reasons(api: Api, owner: Holder) -> None:
    given = {"url": "http://127.0.0.1:9/", "secret": "whsec_c2VjcmV0cyBvZiB0ZXN0cyBhcmUgbG9uZyBlbm91Z2g=", "max_attempts": 1}
    assert api.ask("PUT", "/api/v1/webhooks/mine", json=given).status_code == 204
    owner.append(event("b", follows="a"), event("c", follows="b"), event("z"), event("y", follows="z", subject="N1"))
    shown = until(api, lambda found: [wait.leader for wait in found.waits] == ["missing", "dead", "waiting"])
    assert (shown.scope, shown.kind, shown.waiting, shown.lag, shown.holds) == ("webhook:mine", "webhook", 3, 0, [])
    assert [(wait.id, wait.follows, wait.subject) for wait in shown.waits] == [("b", "a", None), ("y", "z", "N1"), ("c", "b", None)]
    page = waiting(api, "webhook:mine")
    assert (page.at, page.waiting) == (moment(api.clock.now), 3)
    assert [page.waits[place] for place in (0, 2, 1)] == shown.waits
    assert [wait.lost_at for wait in page.waits] == [page.at + timedelta(seconds=900), None, None]
    assert [wait.seq for wait in waiting(api, "webhook:mine", limit=1, after=1).waits] == [2]
    api.clock.turn(20)
    owner.append(event("a"))
    held = until(api, lambda found: sum(found.holds) == 2)
    assert (held.holds, held.hold_seconds, held.ordered) == ([0, 0, 0, 0, 2, 0, 0, 0], 40, 5)
