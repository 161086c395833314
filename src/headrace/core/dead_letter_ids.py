"""Ids of dead letters: triggerers derive them, and the store recognises them. Pure."""

from __future__ import annotations

from headrace.core.values.text import id_part, storable_id


def dead_letter_id(stream: str, lane: str | None, position: int | None, delivery_id: str | None, *parts: object) -> str:
    """Return the id of a dead letter. It is the same for a redelivered raw event, if that has a position."""
    origin = f"delivery {delivery_id}" if position is None and delivery_id is not None else position
    return storable_id("/".join([stream, *(id_part(str(part)) for part in (lane, origin, *parts))]))


def backlog_delivery_id(number: int) -> str:
    """Return the delivery id of a raw event without a position that has `number` in a backlog."""
    return f"backlog-{number}"


def prefix_from_backlog(stream: str, lane: str | None, number: int) -> str:
    """Return the prefix of ids of dead letters of a raw event without a position that has `number` in a backlog."""
    return f"{stream}/{id_part(str(lane))}/delivery {backlog_delivery_id(number)}/"
