"""A wall clock that is ahead or behind, briefly or permanently: no leader is lost early, and no follower waits longer than the lookback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import select

from headrace.api.background.webhook_dispatcher import WebhookDispatcher
from headrace.store import Store
from headrace.store.keyring import Keyring
from headrace.store.ordering import log_feed
from headrace.store.ordering.log_feed import LOOKBACK
from headrace.store.queries.ordering_scopes import waits_in_sql
from headrace.store.tables.ordering import ordering_scopes
from headrace.wire.task_runs import AwaitedEvent, StartRun, WaitCondition
from headrace.wire.webhooks import SetWebhook
from support.processes.store import DATABASES, SECOND, Holder, TurnedClock, event, holder, opened

HOUR = 3_600
WAIT = LOOKBACK // SECOND
IDS = "abcdefghijkl"

HandOn = Callable[[Store], list[tuple[str, str | None]]]
"""Does what an api's dispatcher does in one round or more; returns what it handed on: ids and marks."""


def hand_to_webhook(store: Store) -> list[tuple[str, str | None]]:
    (hook,) = store.webhooks.active()
    dispatcher, handed, busy = WebhookDispatcher(store), [], True
    while busy:
        busy, claims, _ = dispatcher._take(hook)
        hook.home.settle(claims, store.now())
        handed += [(claim.event.id, claim.mark) for claim in claims]
    return handed


def hand_to_task_runs(store: Store) -> list[tuple[str, str | None]]:
    handed = []
    while (taken := store.event_waits.take()) is not None and (taken.read or taken.claims):
        handed += [(claim.event.id, claim.mark) for claim in taken.claims]
        store.event_waits.deliver(taken.claims)
    return handed


HANDS = {"webhook": hand_to_webhook, "task runs": hand_to_task_runs}


@contextmanager
def api(kind: str, folder: Path, clock: TurnedClock) -> Iterator[Store]:
    with opened(kind, folder, clock, Keyring(["a-key-for-secrets-that-only-tests-ever-use_="])) as store:
        yield store


def listen(store: Store) -> Holder:
    """Let a webhook and a task run for each event be told of what comes."""
    owner = holder(store, "first")
    store.webhooks.set(
        "hook", SetWebhook(url="https://example.org", types=["*"], secret="whsec_c2VjcmV0cyBvZiB0ZXN0cyBhcmUgbG9uZyBlbm91Z2g=")
    )
    for id in IDS:
        waiting = WaitCondition(event=AwaitedEvent(on=["*"], id=id))
        store.task_runs.start("flights", StartRun(run_id=id, task="t", waiting=waiting))
    return owner


@pytest.fixture(params=HANDS)
def hand_on(request: pytest.FixtureRequest) -> HandOn:
    return HANDS[request.param]


@pytest.fixture(params=DATABASES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: TurnedClock) -> Iterator[Store]:
    with api(request.param, tmp_path, clock) as made:
        yield made


def follower(id: str, leader: str) -> dict[str, str]:
    return {"id": id, "follows": leader}


@pytest.mark.parametrize("wrong", [-HOUR, HOUR, 400 * 24 * HOUR])
@pytest.mark.parametrize("right_again", [True, False])
def test_a_wrong_clock_does_not_change_the_lookback(
    store: Store, clock: TurnedClock, hand_on: HandOn, wrong: int, right_again: bool
) -> None:
    owner = listen(store)
    owner.append(event(**follower("b", "a")), event(**follower("d", "c")))
    assert hand_on(store) == []
    clock.turn(60)
    clock.set(wrong)
    assert hand_on(store) == []
    owner.append(event(**follower("f", "e")), event(**follower("h", "g")))
    assert hand_on(store) == []
    clock.turn(60)
    assert hand_on(store) == []
    if right_again:
        clock.set(-wrong)
    owner.append(event(**follower("j", "i")))
    assert hand_on(store) == []
    owner.append(event("a"), event("e"))
    assert hand_on(store) == [("a", None), ("b", None), ("e", None), ("f", None)], "in the order of causes"
    clock.turn(WAIT - 121)
    assert hand_on(store) == []
    clock.turn(1)
    assert hand_on(store) == [("d", "lost")]
    clock.turn(59)
    assert hand_on(store) == []
    clock.turn(1)
    assert hand_on(store) == [("h", "lost")]
    clock.turn(60)
    assert hand_on(store) == [("j", "lost")]


def test_a_leader_further_on_in_the_log_is_not_lost(
    store: Store, clock: TurnedClock, hand_on: HandOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = listen(store)
    owner.append(event(**follower("b", "a")), event(**follower("d", "c")))
    assert hand_on(store) == []
    monkeypatch.setattr(log_feed, "PAGE", 3)
    owner.append(*(event(id) for id in "efghijkl"), event("a"))  # nobody reads them, as where the webhook is paused
    clock.turn(WAIT + 1)
    handed = hand_on(store)
    assert sorted(handed) == [*((id, None) for id in "ab"), ("d", "lost"), *((id, None) for id in "efghijkl")]
    assert handed.index(("a", None)) < handed.index(("b", None))


@pytest.mark.parametrize("wrong", [-HOUR, HOUR])
@pytest.mark.parametrize("kind", DATABASES)
def test_a_wait_survives_a_restart_after_a_clock_change(kind: str, wrong: int, hand_on: HandOn, tmp_path: Path, clock: TurnedClock) -> None:
    with api(kind, tmp_path, clock) as store:
        listen(store).append(event(**follower("b", "a")))
        assert hand_on(store) == []
        clock.set(wrong)
        clock.turn(61)
        assert hand_on(store) == []
        store.task_runs.sweep()  # the alarm keeps the mark of the age young
    clock.turn(239)
    with api(kind, tmp_path, clock) as store:
        assert hand_on(store) == []
        clock.turn(WAIT - 301)
        assert hand_on(store) == []
        clock.turn(2)
        assert hand_on(store) == [("b", "lost")]


@pytest.mark.parametrize("kind", DATABASES)
def test_a_wait_that_expires_during_downtime_ends_after_the_restart(kind: str, hand_on: HandOn, tmp_path: Path, clock: TurnedClock) -> None:
    with api(kind, tmp_path, clock) as store:
        listen(store).append(event(**follower("b", "a")))
        assert hand_on(store) == []
    clock.turn(HOUR)
    with api(kind, tmp_path, clock) as store:
        assert hand_on(store) == [("b", "lost")]


@pytest.mark.parametrize("behind", [30, 7 * HOUR])
def test_api_servers_with_different_steady_clocks_agree_on_scope_time(
    hand_on: HandOn, behind: int, tmp_path: Path, clock: TurnedClock
) -> None:
    """The steady clock of a host that was suspended is behind those of the others until it reads their mark."""
    slow = TurnedClock(clock.now, clock.passed)
    with api("postgresql", tmp_path, clock) as first, api("postgresql", tmp_path, slow) as second:
        owner = listen(first)
        for each in (clock, slow):
            each.turn(60)
        slow.passed -= behind * SECOND
        owner.append(event(**follower("b", "a")), event(**follower("d", "c")))
        assert hand_on(first) == hand_on(second) == []
        for each in (clock, slow):
            each.turn(WAIT - 1)
        owner.append(event("a"))
        assert hand_on(second) == [("a", None), ("b", None)]
        assert hand_on(first) == []
        clock.turn(1)
        assert hand_on(first) == [("d", "lost")]
        owner.append(event(**follower("f", "e")))
        assert hand_on(second) == []
        for each in (clock, slow):
            each.turn(WAIT + 1)
        assert hand_on(second) == [("f", "lost")], "it does not wait for longer"


def test_waits_are_shown_in_wall_clock_time(store: Store, clock: TurnedClock, hand_on: HandOn) -> None:
    def shown_waits() -> list[tuple[float, float]]:
        with store.reading() as connection:
            names = connection.execute(select(ordering_scopes.c.name)).scalars().all()
            pages = [waits_in_sql(connection, name, store.now(), after=0, limit=9) for name in names]
        waits = [wait for page in pages if page is not None for wait in page.waits]
        now = store.now() / SECOND
        return [(now - wait.since.timestamp(), wait.lost_at.timestamp() - now) for wait in waits if wait.lost_at is not None]

    listen(store).append(event(**follower("b", "a")))
    hand_on(store)
    assert shown_waits() == [(0, WAIT)]
    clock.turn(30)
    assert shown_waits() == [(30, WAIT - 30)]
    clock.set(HOUR)
    clock.turn(31)
    store.task_runs.sweep()
    assert shown_waits() == [(61, WAIT - 61)]
