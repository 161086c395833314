"""Ids of dead letters: triggerers derive them, and the store recognises them. Pure."""

from __future__ import annotations

from headrace.core.values.text import id_part, storable_id


def dead_letter_id(stream: str, lane: str | None, position: int | None, message_id: str | None, *parts: object) -> str:
    """Return the id of a dead letter: from `message_id` if it is given, else from its lane and position.

    It is the same for a redelivered raw event. Give the id of a message only if its position differs at the next delivery: a sender may
    give two messages one id.
    """
    origin = (lane, position) if message_id is None else (f"id {message_id}",)
    return storable_id("/".join([stream, *(id_part(str(part)) for part in (*origin, *parts))]))


def id_in_backlog(number: int) -> str:
    """Return the id that replaces a message's for a raw event with neither id nor position that has `number` in a backlog."""
    return f"backlog-{number}"


def prefix_from_backlog(stream: str, number: int) -> str:
    """Return the prefix of ids of dead letters of a raw event with neither id nor position that has `number` in a backlog."""
    return f"{stream}/id {id_in_backlog(number)}/"
