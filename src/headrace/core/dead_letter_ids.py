"""Ids of dead letters, as triggerers make them and the store recognises them. Pure."""

from __future__ import annotations

from headrace.core.values.text import id_part, storable_id


def letter_id(stream: str, lane: str | None, position: int | None, delivery_id: str | None, *parts: object) -> str:
    """Return the id of a dead letter: the same again when the raw event comes again, where that can be known."""
    place = f"delivery {delivery_id}" if position is None and delivery_id is not None else position
    return storable_id("/".join([stream, *(id_part(str(part)) for part in (lane, place, *parts))]))


def backlog_delivery_id(number: int) -> str:
    """Return the delivery id of a raw event without a position that is kept in a backlog under `number`."""
    return f"backlog-{number}"


def prefix_from_backlog(stream: str, lane: str | None, number: int) -> str:
    """Return how the ids of dead letters begin that are of the raw event without a position kept under `number`."""
    return f"{stream}/{id_part(str(lane))}/delivery {backlog_delivery_id(number)}/"
