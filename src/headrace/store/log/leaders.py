"""The leaders of events, by the events' keys."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select

from headrace.store.dialects.statements import in_list, rows_among
from headrace.store.redeliveries import firing_redeliveries, trigger_names
from headrace.store.tables.log import events
from headrace.wire.pipelines.plans import FoundLeader

_events = select(events.c.seq, events.c.key, events.c.leader_key).where(in_list(events.c.key, "keys"))


def find_leaders(connection: Connection, keys: Sequence[bytes], project: str | None) -> list[FoundLeader]:
    """Return the given events that the log has, with the triggers of `project` (None: of all) that fired before they were stored."""
    rows = rows_among(connection, _events, "keys", set(keys))
    firings_by_seq = firing_redeliveries(connection, sorted(row.seq for row in rows))
    names = trigger_names(connection, {trigger for fired in firings_by_seq.values() for trigger in fired}, project)
    return [
        FoundLeader(
            key=bytes(row.key),
            leader=None if row.leader_key is None else bytes(row.leader_key),
            triggers=[names[trigger] for trigger, since in firings_by_seq.get(row.seq, {}).items() if not since and trigger in names],
        )
        for row in rows
    ]
