"""One event, as GET /api/v1/events/{seq} and `headrace events show` present it: its position and mark, or its wait, in each scope."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.client.pipeline import PipelineClient
from headrace.store.queries import events
from headrace.wire.pipelines.scopes import EventInScope
from headrace.wire.status.status import EventDetail, EventPage
from support.pipelines.kit import leg
from support.pipelines.scopes import Scope
from support.processes.execution_api import KEY, Api, serving
from support.processes.store import DATABASES, Holder, event, holder, registration


@pytest.fixture(params=DATABASES)
def api(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    with serving(tmp_path, kind=request.param, webhook_allow_private=True) as running:
        monkeypatch.setenv("HEADRACE_API_URL", running.url)
        monkeypatch.setenv("COLUMNS", "200")
        yield running


@pytest.fixture
def owner(api: Api) -> Holder:
    return holder(api.store, "legs.a")


@pytest.fixture
def client(api: Api) -> Iterator[PipelineClient]:
    with PipelineClient(api.url, key=KEY) as made:
        made.register(registration("pipeline"))
        yield made


def detail(api: Api, seq: int) -> EventDetail:
    return EventDetail.model_validate_json(api.ask("GET", f"/api/v1/events/{seq}", token=None).raise_for_status().content)


def in_scope(api: Api, seq: int) -> EventInScope:
    (found,) = detail(api, seq).scopes
    return found


def event_output(seq: int, *options: str) -> str:
    result = CliRunner().invoke(app, ["events", "show", str(seq), *options])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def line(seq: int, scope: str = "flights") -> str:
    return next(each for each in event_output(seq).splitlines() if each.startswith(f"{scope}:"))


def test_the_position_and_mark_of_an_event_in_a_scope_are_shown(api: Api, owner: Holder, client: PipelineClient) -> None:
    (trigger,) = owner.epochs
    scope = Scope(client, legs=("*", "micro"))
    owner.append(leg("p", trigger))
    assert (in_scope(api, 1).state, in_scope(api, 1).position) == ("unread", None)
    assert line(1) == "flights: not read yet"
    owner.append(leg("b", trigger, follows="a"), leg("c", trigger, follows="b"), leg("x", trigger, follows="y"))
    scope.next()
    assert (in_scope(api, 1).state, in_scope(api, 1).position, in_scope(api, 1).mark) == ("released", 1, None)
    assert line(1) == "flights: released at position 1"
    scope.next(clock=3)

    waits = in_scope(api, 2)
    assert (waits.state, waits.position, waits.mark) == ("waiting", None, None)
    assert waits.wait is not None
    assert waits.wait.lost_at is not None
    assert (waits.wait.follows, waits.wait.leader) == ("a", "missing")
    assert ((waits.at - waits.wait.since).total_seconds(), (waits.wait.lost_at - waits.at).total_seconds()) == (3, 7)
    leader = detail(api, 2).leader
    assert leader is not None
    assert (leader.state, leader.seq) == ("missing", None)
    assert line(2) == "flights: b waits for a, for 3 s (until it counts as lost: 7 s)"
    follower = detail(api, 3)
    assert follower.leader is not None
    assert (follower.leader.state, follower.leader.seq) == ("stored", 2)
    assert line(3) == "flights: c waits for b, for 3 s (which waits itself)"

    owner.append(leg("y", trigger, follows="x"))
    scope.next(clock=4)
    assert [(in_scope(api, seq).state, in_scope(api, seq).mark) for seq in (4, 5)] == [("released", "cycle")] * 2
    assert line(5).endswith("as part of a cycle: it follows itself through others")
    scope.next(clock=12)
    assert [(in_scope(api, seq).position, in_scope(api, seq).mark) for seq in (2, 3)] == [(4, "lost"), (5, None)]
    assert line(2) == "flights: released at position 4 as lost: its leader did not arrive within the lookback"
    assert line(3) == "flights: released at position 5"
    api.clock.turn(60)
    owner.append(leg("a", trigger))
    scope.next(clock=13)
    assert (in_scope(api, 6).position, in_scope(api, 6).mark) == (6, "late")
    assert line(6) == "flights: released at position 6 as late: it arrived after a follower of it was released as lost"
    assert "event 6, received 1 min 0 s after this event" in event_output(2)
    assert json.loads(event_output(2, "--json"))["scopes"][0]["mark"] == "lost"


def test_a_wait_missing_in_the_report_of_its_scope_is_shown_without_its_start(api: Api, owner: Holder, client: PipelineClient) -> None:
    (trigger,) = owner.epochs
    scope = Scope(client, legs=("*", "micro"))
    owner.append(*(leg(f"b{number}", trigger, follows=f"a{number}") for number in range(101)))
    scope.next()
    page = api.ask("GET", "/api/v1/scopes/flights/waiting", token=None, params={"limit": 1000}).json()
    (other,) = set(range(1, 102)) - {wait["seq"] for wait in page["waits"]}
    assert (in_scope(api, other).state, in_scope(api, other).wait) == ("waiting", None)
    assert line(other) == f"flights: waits for a{other - 1}. The start is reported only for the 100 longest waits of a scope."


def test_an_event_is_not_in_scopes_that_began_after_it(api: Api, owner: Holder, client: PipelineClient) -> None:
    (trigger,) = owner.epochs
    owner.append(leg("a", trigger), leg("b", trigger))
    scope = Scope(client, legs=("*", "micro"))
    scope.hold("later", begin=2)
    assert [found.scope for found in detail(api, 1).scopes] == ["flights"]
    assert [found.scope for found in detail(api, 2).scopes] == ["flights", "later"]


def until(api: Api, seq: int, condition: Callable[[EventInScope], bool]) -> EventInScope:
    for _ in range(2_000):
        found = detail(api, seq).scopes
        if found and condition(found[0]):
            return found[0]
    raise AssertionError(found)


def test_undelivered_events_of_a_webhook_are_shown(api: Api, owner: Holder) -> None:
    given = {"url": "http://127.0.0.1:9/", "secret": "whsec_c2VjcmV0cyBvZiB0ZXN0cyBhcmUgbG9uZyBlbm91Z2g=", "max_attempts": 1}
    assert api.ask("PUT", "/api/v1/webhooks/mine", json=given).status_code == 204
    owner.append(event("b", follows="a"), event("z"), event("y", follows="z"))
    dead = until(api, 2, lambda found: found.state == "dead")
    assert (dead.scope, dead.kind, dead.position, dead.mark) == ("webhook:mine", "webhook", 1, None)
    missing, held = in_scope(api, 1), in_scope(api, 3)
    assert missing.wait is not None
    assert held.wait is not None
    assert [(found.state, found.position) for found in (missing, held)] == [("waiting", None), ("waiting", 2)]
    assert (missing.wait.leader, held.wait.leader) == ("missing", "dead")
    assert line(2, "webhook:mine").endswith("released at position 1, given up. To retry: headrace webhooks redrive mine")
    assert "y waits for z" in line(3, "webhook:mine")


def test_an_event_in_no_scope_is_shown(api: Api, owner: Holder) -> None:
    owner.append(event("a", payload='{"n": 1}'))
    assert detail(api, 1).leader is None
    assert event_output(1).splitlines()[-2:] == ["No scope has this event.", '{"n": 1}']
    result = CliRunner().invoke(app, ["events", "show", "2"])
    assert (result.exit_code, str(result.exception)) == (1, "No event has the seq 2.")


def test_old_events_of_a_subject_are_listed(owner: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_SCANNED_EVENTS", 2)  # the server runs in this process
    owner.append(*(event(f"e{number}", subject="rare" if number in (1, 4) else "N1") for number in range(1, 10)))
    result = CliRunner().invoke(app, ["events", "list", "--subject", "rare", "--json"])
    assert result.exit_code == 0, (result.output, result.exception)
    page = EventPage.model_validate_json(result.stdout)
    assert ([each.id for each in page.events], page.before) == (["e4", "e1"], None)
    newest = CliRunner().invoke(app, ["events", "list", "--subject", "rare", "--json", "-n", "1"])
    assert [each.id for each in EventPage.model_validate_json(newest.stdout).events] == ["e4"]
    assert "The log has no such event." in CliRunner().invoke(app, ["events", "--subject", "none"]).stdout
