"""The contract of staged declarations: sent in pages, applied in bounded slices, complete at the end, idempotent."""

from __future__ import annotations

from random import Random
from threading import current_thread
from typing import Any

import pytest
from sqlalchemy import event, func, select

from headrace.errors import ApiRefused, Fenced
from headrace.store import Store
from headrace.store.control import encrypted_arguments, projects
from headrace.store.control.declarations import staged_declarations
from headrace.store.tables.control import staged_triggers, triggers
from headrace.store.tables.pipelines import pipelines
from headrace.wire.control.jobs import CompleteJob
from headrace.wire.control.triggers import DeclaredTrigger, DeclareProject, ProjectDeclared, StageTriggers
from support.processes.store import Holder, TurnedClock, arguments, declaration, holder, registration

ID = "declaration-1"


@pytest.fixture
def owner(store: Store) -> Holder:
    return holder(store, "kept", "changed", "adjusted", "gone")


def send(owner: Holder, declared: DeclareProject, id: str = ID, *, size: int = 2) -> None:
    for start in range(0, len(declared.triggers), size):
        page = StageTriggers(declaration=id, triggers=declared.triggers[start : start + size])
        for _ in range(2):
            owner.store.projects.stage(owner.job_id, page)


def switch(owner: Holder, declared: DeclareProject, id: str = ID, after: str = "") -> ProjectDeclared:
    """Apply what one call has time for."""
    whole = declared.model_copy(update={"triggers": [], "staged": id, "count": len(declared.triggers), "after": after})
    return owner.store.projects.declare(owner.job_id, "flights", whole)


def switch_whole(owner: Holder, declared: DeclareProject, id: str = ID) -> None:
    """Apply all of it, in as many calls as a slow disk makes of it."""
    after = ""
    while not (answer := switch(owner, declared, id, after)).done:
        after = answer.after


def states(store: Store) -> dict[str, tuple[str, int]]:
    with store.reading() as connection:
        return {row.name: (row.state, row.epoch) for row in connection.execute(select(triggers).order_by(triggers.c.id))}


def staged(store: Store) -> int:
    with store.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(staged_triggers)).scalar_one())


def second() -> DeclareProject:
    """Another declaration of the project: something kept, changed, adjusted, gone and new."""
    plain, changed = declaration("kept", "adjusted", "new", pipelines=["p"]), declaration("changed", n=1)
    adjusted = [one.model_copy(update={"priority": 5}) if one.name == "adjusted" else one for one in plain.triggers]
    return plain.model_copy(update={"triggers": [*adjusted, *changed.triggers]})


def test_a_staged_declaration_equals_a_whole_declaration(store: Store, owner: Holder) -> None:
    declared = second()
    send(owner, declared)
    assert states(store) == dict.fromkeys(("kept", "changed", "adjusted", "gone"), ("running", 1)), "nothing is applied yet"
    for _ in range(2):
        switch_whole(owner, declared)
    now = {"kept": ("running", 1), "changed": ("waiting", 1), "adjusted": ("running", 1), "gone": ("removed", 1), "new": ("waiting", 0)}
    assert states(store) == now
    assert staged(store) == 0
    owner.load()
    assert states(store)["changed"] == ("running", 2)
    with store.reading() as connection:
        assert connection.execute(select(triggers.c.priority).where(triggers.c.name == "adjusted")).scalar_one() == 5
        assert connection.execute(select(pipelines.c.name)).scalars().all() == ["p"]
    send(owner, declared, "declaration-2")
    switch_whole(owner, declared, "declaration-2")
    assert states(store)["changed"] == ("running", 2), "what has not changed runs on"


def test_new_triggers_are_added_before_old_triggers_are_removed(store: Store, owner: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projects, "MAX_APPLY_SECONDS", 0.0)
    monkeypatch.setattr("headrace.store.control.declarations.MAX_SLICE_TRIGGERS", 1)
    declared = second()
    send(owner, declared)
    seen: list[tuple[bool, bool]] = []
    monkeypatch.setattr(projects, "monotonic", iter(range(1_000)).__next__)
    monkeypatch.setattr(projects, "MAX_APPLY_SECONDS", 2)
    after = ""
    while not (answer := switch(owner, declared, after=after)).done:
        after, now = answer.after, states(store)
        seen.append(("new" in now, now["gone"][0] == "removed"))
    assert answer.triggers == {}
    assert len(seen) >= 5
    assert (False, True) not in seen


def test_a_declaration_with_a_missing_page_changes_nothing(store: Store, owner: Holder) -> None:
    before = states(store)
    declared = second()
    send(owner, declared.model_copy(update={"triggers": declared.triggers[:-1]}))
    with pytest.raises(ApiRefused, match="3 of 4 triggers are staged"):
        switch(owner, declared)
    assert states(store) == before
    stranger = store.jobs.register(registration(project="trains"))
    with pytest.raises(ApiRefused, match="belongs to project"):
        switch(Holder(store, stranger.id, {}), declared)
    store.jobs.complete(owner.job_id, CompleteJob(state="failed"))
    with pytest.raises(Fenced):
        send(owner, declared)


def test_pages_of_a_declaration_keep_the_job_alive(store: Store, owner: Holder, clock: TurnedClock) -> None:
    """A declaration that takes long has no heartbeats beside it."""
    declared, other = second(), holder(store)
    for one in declared.triggers:
        clock.turn(20)
        other.load()
        store.projects.stage(owner.job_id, StageTriggers(declaration=ID, triggers=[one]))
    clock.turn(20)
    other.load()
    switch(owner, declared)
    clock.turn(20)
    other.load()
    switch_whole(owner, declared)


def test_arguments_changed_by_a_concurrent_declaration_are_declared_again(store: Store, owner: Holder, clock: TurnedClock) -> None:
    declared = declaration("kept", "changed")
    send(owner, declared)
    clock.turn(1)
    store.projects.declare(owner.job_id, "flights", declaration("kept", "changed", n=7))
    switch_whole(owner, declared)
    owner.load()
    (first, *_) = store.triggers.workloads(owner.job_id, [1])
    assert arguments(first) == {}


def test_staged_pages_that_were_never_declared_are_pruned(store: Store, owner: Holder, clock: TurnedClock) -> None:
    send(owner, second())
    assert store.prune(lambda connection: staged_declarations(connection, store.now(), 100)) == 0
    clock.turn(60)
    assert store.prune(lambda connection: staged_declarations(connection, store.now(), 100)) == 4
    assert staged(store) == 0


def some_triggers(random: Random) -> DeclareProject:
    """Return triggers of which a second choice has some, others, and some declared otherwise, also without what may be left out."""
    return DeclareProject(
        triggers=[
            DeclaredTrigger(
                name=f"t{number:02}",
                classpath=random.choice(("some.Trigger", "some.Other")),
                kwargs=random.choice(({}, {"n": 1})),
                stream=random.choice((None, "a", "b")),
                queue=random.choice(("default", "q")),
                priority=random.choice((0, 1)),
                max_restarts=random.choice((None, 3)),
            )
            for number in random.sample(range(40), 25)
        ],
        pipelines=[],
    )


@pytest.mark.parametrize("seed", range(4))
def test_pages_and_a_single_call_have_the_same_result(store: Store, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.store.control.declarations.MAX_SLICE_TRIGGERS", 7)
    random = Random(seed)
    declared = [some_triggers(random) for _ in range(4)]
    owners = {project: holder(store, project=project) for project in ("flights", "trains")}
    for at, one in enumerate(declared):
        send(owners["flights"], one, f"declaration-{at}", size=4)
        switch_whole(owners["flights"], one, f"declaration-{at}")
        store.projects.declare(owners["trains"].job_id, "trains", one)
        for owner in owners.values():
            owner.load()
        assert stored_triggers(store, "flights") == stored_triggers(store, "trains")


def stored_triggers(store: Store, project: str) -> list[Any]:
    """Return what is kept of a project's triggers, but for their ids and the moments at which they were declared."""
    names = ("name", "classpath", "kwargs", "kwargs_digest", "stream", "queue", "priority", "max_restarts", "state", "epoch", "restarts")
    with store.reading() as connection:
        columns = [triggers.c[name] for name in names]
        found = connection.execute(select(*columns).where(triggers.c.project == project).order_by(triggers.c.name)).all()
    return [tuple(row) for row in found]


def test_arguments_are_encrypted_without_the_writers_lock(owner: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    sealers: set[str] = set()
    seal = encrypted_arguments.encrypt

    def sealed(*given: Any) -> dict[str, str | None]:
        sealers.add(current_thread().name)
        return seal(*given)

    monkeypatch.setattr(encrypted_arguments, "encrypt", sealed)
    send(owner, second())
    assert sealers == {current_thread().name}


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_postgresql_does_not_scan_the_index_of_triggers_for_each_row(store: Store, owner: Holder) -> None:
    engine = store._database._writer._engine
    plans: list[str] = []

    def explain(_connection: object, cursor: Any, statement: str, parameters: Any, *_: object) -> None:
        if "staged_triggers" in statement and "kwargs_digest" in statement and statement.startswith(("SELECT", "INSERT", "UPDATE")):
            rows = cursor.connection.execute(f"EXPLAIN {statement}", parameters).fetchall()
            plans.append("\n".join(row[0] for row in rows))

    names = [f"t{number:04}" for number in range(3_000)]
    send(owner, declaration(*names), size=1_000)
    switch_whole(owner, declaration(*names))
    for at, declared in enumerate((declaration(*names, n=1), declaration(*names, n=1, stream=None))):
        send(owner, declared, f"declaration-{at + 2}", size=1_000)
        event.listen(engine, "before_cursor_execute", explain)
        switch_whole(owner, declared, f"declaration-{at + 2}")
        event.remove(engine, "before_cursor_execute", explain)
    assert len(plans) >= 6
    assert not [plan for plan in plans if "ix_triggers_run_id" in plan], plans
