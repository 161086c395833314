"""The last holder of a trigger may still store its events after the trigger changed or was removed."""

from __future__ import annotations

from pathlib import Path

from headrace.store import Store
from headrace.store.queries.status import overview
from support.processes.store import Holder, declaration, event, holder, opened, registration


def test_late_events_of_the_last_holder_of_a_removed_trigger_are_stored(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as store:
        owner = holder(store, "one", "two")
        (one, two) = owner.epochs
        store.projects.declare(owner.job_id, "flights", declaration("one"))
        assert owner.append(event("a", one, two), event("b", two)) == ["stored", "stored"]
        assert _state(store, "two") is None
        assert two not in owner.load()


def test_a_new_lease_fences_the_previous_epoch(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as store:
        owner = holder(store, "one")
        (one,) = before = dict(owner.epochs)
        store.projects.declare(owner.job_id, "flights", declaration("one", changed=True))
        assert _state(store, "one") == "waiting"
        assert owner.append(event("a", one)) == ["stored"]
        assert _state(store, "one") == "waiting"
        owner.load()
        after, owner.epochs = owner.epochs, before
        assert owner.append(event("b", one)) == ["fenced"]
        owner.epochs = after
        assert owner.append(event("b", one)) == ["stored"]


def test_events_of_another_job_for_an_unheld_trigger_are_fenced(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as store:
        owner = holder(store, "one")
        (one,) = owner.epochs
        store.projects.declare(owner.job_id, "flights", declaration("one", changed=True))
        stranger = Holder(store, store.jobs.register(registration()).id, dict(owner.epochs))
        assert stranger.append(event("a", one)) == ["fenced"]


def _state(store: Store, name: str) -> str | None:
    """Return the state of a trigger that is still declared."""
    with store.reading() as connection:
        return next((one.state for one in overview(connection, store.now(), store.liveness).triggers if one.name == name), None)
