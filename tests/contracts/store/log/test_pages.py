"""Pages of the log have the values of the rows, in whatever parts they are read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select
from sqlalchemy import event as on

from headrace.store import Store
from headrace.store.log import pages
from headrace.store.tables.control import triggers
from headrace.store.tables.log import events, firings
from headrace.wire.log import LOG_SCHEMA
from support.processes.store import Holder, event, holder

NAMES = [f"trigger {number}" for number in range(4)]
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
some = st.fixed_dictionaries(
    {
        "source": texts,
        "type": texts,
        "firings": st.lists(st.integers(1, len(NAMES)), min_size=1, unique=True),
        "payload": st.sampled_from(["{}", '"' + "x" * 90 + '"', '"ä,€,😀"', '"' + "ä" * 70 + '"', "1"]),
    },
    optional={
        "subject": texts,
        "follows": texts,
        "trace": texts,
        "occurred": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),
    },
)


@pytest.fixture
def owner(store: Store, monkeypatch: pytest.MonkeyPatch) -> Holder:
    """Return the holder of four triggers, with a log that is read in small parts."""
    monkeypatch.setattr(pages, "FIRST_PART_EVENTS", 1)
    monkeypatch.setattr(pages, "PART_EVENTS", 3)
    monkeypatch.setattr(pages, "MAX_PAYLOAD_BYTES", 10_000)
    return holder(store, *NAMES)


def rows_of(store: Store, after: int) -> list[dict[str, Any]]:
    """Return the events after `after`, row by row."""
    with store.reading() as connection:
        names = {row.id: row.name for row in connection.execute(select(triggers.c.id, triggers.c.name))}
        fired: dict[int, list[str]] = {}
        for seq, trigger in connection.execute(select(firings).order_by(firings.c.seq, firings.c.trigger_id)):
            fired.setdefault(seq, []).append(names[trigger])
        rows = connection.execute(select(events).where(events.c.seq > after).order_by(events.c.seq)).mappings().all()
        return [{name: row[name] for name in LOG_SCHEMA.names if name != "triggers"} | {"triggers": fired[row["seq"]]} for row in rows]


def values_of(table: Any) -> list[dict[str, Any]]:
    """Return the rows of a page, with times in microseconds, as the database has them."""
    times = {name: table.schema.get_field_index(name) for name in ("occurred", "received")}
    for name, index in times.items():
        table = table.set_column(index, name, table.column(name).cast("int64"))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(items=st.lists(some, min_size=1, max_size=12), limit=st.integers(1, 14), removed=st.sets(st.integers(0, 11)), data=st.data())
def test_a_page_has_the_values_of_the_rows(
    store: Store, owner: Holder, items: list[dict[str, Any]], limit: int, removed: set[int], data: st.DataObject
) -> None:
    first = store.log.head().head
    assert set(owner.append(*(event(f"{first}-{number}", **item) for number, item in enumerate(items)))) == {"stored"}
    store.prune(lambda connection: connection.execute(delete(events).where(events.c.seq.in_([first + 1 + n for n in removed]))).rowcount)
    expected = rows_of(store, first)
    assert values_of(store.log.page(after=first, limit=limit).table) == expected[:limit]
    chosen = sorted(data.draw(st.sets(st.integers(first + 1, first + len(items)), min_size=1)))
    assert values_of(store.log.get_by_seq(chosen).table) == [row for row in expected if row["seq"] in chosen]


def test_an_event_with_a_large_payload_is_read_alone(store: Store) -> None:
    owner = holder(store, "first")
    large = '"' + "x" * pages.LARGE_PAYLOAD_BYTES + '"'
    owner.append(*(event(f"{number}", payload=large if number in (20, 21, 40) else "{}") for number in range(100)))
    sizes: list[int] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        if "payload" in statement and "LIMIT" not in statement:
            after, to = (parameters["after"], parameters["to"]) if isinstance(parameters, dict) else parameters[-2:]
            sizes.append(to - after)

    with store.reading() as connection:
        on.listen(connection, "after_cursor_execute", note)
        assert pages.read_page(connection, 0, 100, 1_000, None).num_rows == 100
    assert sizes == [16, 4, 1, 1, 18, 1, 59]
