"""`headrace events waiting`, `headrace scopes` and `headrace status` against a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.commands.inspect.events import describe
from headrace.cli.main import app
from headrace.client.pipeline import PipelineClient
from headrace.wire.control.jobs import CompleteJob, Heartbeat, RunningBatch
from headrace.wire.custody.events import Cursor, ScopeReport, WaitingEvent
from headrace.wire.pipelines.plans import Plan, PlannedRun
from headrace.wire.pipelines.scopes import FollowerWait, LeaderState, WaitPage
from support.pipelines.plans import plan_next, stored_cursor
from support.processes.calls import acquire_scope
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import event, holder, registration

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with serving(tmp_path) as running:
        monkeypatch.setenv("HEADRACE_API_URL", running.url)
        monkeypatch.setenv("HEADRACE_KEY", KEY)
        monkeypatch.setenv("COLUMNS", "200")
        yield running


def headrace(*typed: str) -> Result:
    return CliRunner().invoke(app, list(typed))


def output_of(*typed: str) -> str:
    """Return what a command that went well said."""
    result = headrace(*typed)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_waiting_events_are_listed_with_their_leaders(api: Api) -> None:
    assert output_of("events", "waiting") == "There are no scopes. Start one with `headrace pipeline`.\n"
    owner = holder(api.store, "legs")
    owner.append(event("leg-17", follows="leg-16"), event("leg-18", follows="leg-17"))
    with PipelineClient(api.url, key=KEY) as driver:
        driver.register(registration("pipeline"))
        plan_next(driver, "quiet", Cursor(cursor=2, batch=0))
        waits = [WaitingEvent(seq=1, seconds=12), WaitingEvent(seq=2, seconds=11)]
        report = ScopeReport(waits=waits, lookback=900, read=500, seconds=0.5, held=7)
        plan_next(driver, "flights", Cursor(cursor=2, batch=4, waiting=1_300, lost=2, report=report))
        lines = [
            "flights: 1,300 wait",
            "  leg-17 waits for leg-16, for 12 s (until it counts as lost: 14 min 48 s)",
            "  leg-18 waits for leg-17, for 11 s (which waits itself)",
            "  and 1,298 more",
        ]
        assert output_of("events", "waiting", "--scope", "flights").splitlines() == lines
        assert output_of("events", "waiting").splitlines() == [*lines, "quiet: no event waits. All events have been released."]
        assert json.loads(output_of("events", "waiting", "-n", "1", "--json"))["scopes"][0]["waits"][0]["follows"] == "leg-16"
        result = headrace("events", "waiting", "--scope", "nowhere")
        assert result.exit_code == 1
        assert "There is no scope 'nowhere'." in str(result.exception)
        assert "leg-18" in output_of("events", "-n", "1")

        def row() -> list[str]:
            return next(line.split() for line in output_of("status").splitlines() if line.lstrip().startswith("flights"))

        assert row() == ["flights", "2", "0", "0", "7", "1,300", "12", "s", "0", "2", "0", "0", "1,", "1,000", "events/s", *row()[-3:]]
        assert "headrace events waiting" in output_of("status")
        driver.heartbeat(Heartbeat(batch=RunningBatch(scope="flights", batch=5, events=9, seconds=75)))
        assert row()[12:19] == ["5", "runs", "for", "1", "min", "15", "s"]
        run = PlannedRun(number=0, pipeline="p", events=1, first=1, last=1, slice=0)
        driver.plan("flights", Plan(epoch=1, cursor=Cursor(cursor=2, batch=2), runs=[run], slices=[b"x"]))
        assert row()[3:6] == ["1", "0", "0"]


def test_a_scope_is_reset_after_confirmation(api: Api) -> None:
    holder(api.store, "legs").append(*(event(f"{n}") for n in range(9)))
    with PipelineClient(api.url, key=KEY) as driver:
        driver.register(registration("pipeline"))
        acquire_scope(driver, "flights")
        run = PlannedRun(number=0, pipeline="p", events=1, first=1, last=1, slice=0)
        cursor = Cursor(cursor=9, batch=1, waiting=1_200, report=ScopeReport(held=1))
        driver.plan("flights", Plan(epoch=1, cursor=cursor, runs=[run], slices=[b"x"]))
        assert next(line.split()[:5] for line in output_of("scopes").splitlines() if "flights" in line) == [
            "flights",
            "pipeline",
            "9",
            "9",
            "1",
        ]
        held = headrace("scopes", "reset", "flights", "--from", "now", "--yes")
        assert (held.exit_code, str(held.exception)) == (1, "Scope 'flights' is read by job 2.")
        driver.complete(CompleteJob(state="succeeded"))
    question = "Reset flights? Given up: 1 open run, 1,200 waiting events, 1 held event. [y/N]: "
    refused = CliRunner().invoke(app, ["scopes", "reset", "flights", "--from", "3"], input="n\n")
    assert (refused.exit_code, refused.stdout.startswith(question)) == (1, True)
    assert stored_cursor(api.store, "flights").cursor == 9
    done = CliRunner().invoke(app, ["scopes", "reset", "flights", "--from", "3"], input="y\n")
    given_up = "1 open run, 1,200 waiting events, 1 held event"
    assert done.stdout == f"{question}y\nScope flights starts with event 3. Given up: {given_up}.\n"
    assert output_of("scopes", "reset", "flights", "--from", "now", "-y") == "Scope flights starts with event 10. Given up: nothing.\n"


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["nowhere", "--from", "now"], "No pipeline has a scope 'nowhere'."),
        (["flights", "--from", "0"], "Invalid --from '0': it must be the seq of an event or 'now'."),
        (["flights", "--from", "2"], "The event log ends at event 0: a scope cannot begin at event 2."),
    ],
)
def test_an_impossible_reset_is_an_error(api: Api, typed: list[str], said: str) -> None:
    api.store.scope_leases.acquire(job := api.store.jobs.register(registration("pipeline")).id, "flights")
    api.store.jobs.complete(job, CompleteJob(state="succeeded"))
    result = headrace("scopes", "reset", *typed, "--yes")
    assert (result.exit_code, str(result.exception)) == (1, said)
    assert stored_cursor(api.store, "flights").cursor == 0


@pytest.mark.parametrize(
    ("leader", "seconds", "said"),
    [
        ("missing", 899, "a waits for b, for 14 min 59 s (until it counts as lost: 1 s)"),
        ("missing", 900, "a waits for b, for 15 min 0 s (which counts as lost any moment)"),
        ("in_progress", 3_600, "a waits for b, for 1 h 0 min (in progress)"),
        ("dead", 90_000, "a waits for b, for 1 d 1 h (which was given up. To retry: headrace webhooks redrive billing)"),
    ],
)
def test_the_end_of_a_wait_is_described(leader: LeaderState, seconds: int, said: str) -> None:
    lost_at = NOON + timedelta(seconds=900) if leader == "missing" else None
    wait = FollowerWait(seq=1, id="a", source="s", subject=None, follows="b", leader=leader, since=NOON, lost_at=lost_at)
    page = WaitPage(scope="webhook:billing", kind="webhook", at=NOON + timedelta(seconds=seconds), waiting=1, waits=[wait], after=None)
    assert describe(wait, page) == said
