"""What is looked up by many keys is looked up by an index: a log of a billion events must not be read to append one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Select, event, select

from headrace.store.dialects import among
from headrace.store.tables import dead_letters, events, firings, lanes, triggers
from store_kit import event as made
from store_kit import holder, opened

LOOKUPS = {
    "events": select(events.c.seq).where(among(events.c.key, "values")),
    "firings": select(firings.c.trigger_id).where(among(firings.c.seq, "values")),
    "triggers": select(triggers.c.name).where(among(triggers.c.id, "values"), triggers.c.state == "waiting"),
    "dead letters": select(dead_letters.c.state).where(among(dead_letters.c.id, "values")),
    "lanes": select(lanes.c.id).where(lanes.c.stream == "s", among(lanes.c.lane, "values")),
}


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("what", LOOKUPS)
def test_sqlite_searches_and_does_not_scan(what: str, count: int, tmp_path: Path) -> None:
    lookup: Select[tuple[object]] = LOOKUPS[what]
    with opened("sqlite", tmp_path) as store, store.reading() as connection:
        plans: list[str] = []

        @event.listens_for(connection, "before_cursor_execute")
        def explain(_connection: object, cursor: Any, statement: str, parameters: object, *_: object) -> None:
            rows = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(row[3] for row in rows)

        connection.execute(lookup, {"values": [b"x" if what == "events" else 1] * count})
    assert plans
    assert all(plan.startswith("SEARCH") for plan in plans), plans


def test_an_append_reads_no_table_from_end_to_end(tmp_path: Path) -> None:
    with opened("sqlite", tmp_path) as store:
        owner = holder(store, "a")
        plans: list[str] = []

        def explain(_connection: object, cursor: Any, statement: str, parameters: object, *_: object) -> None:
            if statement.lstrip().startswith(("SELECT", "UPDATE", "DELETE")):
                rows = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
                plans.extend(f"{row[3]}: {statement}" for row in rows)

        engine = store._database._writer._engine
        event.listen(engine, "before_cursor_execute", explain)
        owner.append(made("1", *owner.epochs), made("2", *owner.epochs, follows="1"))
        event.remove(engine, "before_cursor_execute", explain)
    assert plans
    assert [plan for plan in plans if plan.startswith("SCAN")] == []
