"""The ids that identify a raw event beside its lane and position."""

from __future__ import annotations

from headrace.core.dead_letter_ids import id_in_backlog
from headrace.core.ledger.obligations import PendingBacklogEvent, PendingEvent
from headrace.triggers.raw_event import message_id


def origin_id(entry: PendingEvent) -> str | None:
    """Return the id of the entry's message, from which default ids of events derive, or None if lane and position identify it."""
    return message_id(entry.raw) or _backlog_id(entry)


def dead_letter_origin_id(entry: PendingEvent) -> str | None:
    """Return the id from which the ids of dead letters derive, or None if lane and position identify the entry.

    A sender may give two messages one id. So the position identifies a dead letter, unless the stream has assigned it.
    """
    id = message_id(entry.raw) if entry.lane.has_assigned_positions else None
    return id or _backlog_id(entry)


def former_stream(entry: PendingEvent) -> str | None:
    """Return the stream of an entry if it is another than the present one: its trigger read that when the entry was stored."""
    return entry.stream if isinstance(entry, PendingBacklogEvent) else None


def _backlog_id(entry: PendingEvent) -> str | None:
    if entry.position is None and isinstance(entry, PendingBacklogEvent) and entry.number is not None:
        return id_in_backlog(entry.number)
    return None
