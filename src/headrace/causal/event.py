"""An event of a causal order, as people give it and as a home keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import msgspec

from headrace.core.ordering.handling import OrderedEvent

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalEvent:
    """An event with the id of the one that it follows, if there is one; `payload` is anything that JSON holds.

    Ids are told apart by `source`, and a leader has the same source. `occurred` gives the order among events that are ready together;
    `received`, if it is given, says when the event came: its age and its wait count from then, and not from when it is offered.
    `mark` says `lost`, `late` or `cycle` of an event that is handed on.
    """

    id: str
    occurred: datetime
    follows: str | None = None
    payload: Any = None
    source: str = ""
    mark: str | None = None
    received: datetime | None = None


def caused(event: CausalEvent) -> OrderedEvent:
    """Return an event as a home takes it."""
    received = None if event.received is None else _micros(event.received)
    payload = event.payload
    body = "null" if payload is None else _encode(payload).decode()
    return OrderedEvent.of(event.source, event.id, event.follows, _micros(event.occurred), body, received)


def causal_event(taken: OrderedEvent, mark: str | None = None) -> CausalEvent:
    """Return an event as a home gave it."""
    body = taken.body
    return CausalEvent(
        id=taken.id,
        occurred=_EPOCH + timedelta(microseconds=taken.occurred),
        follows=taken.follows,
        payload=None if body is None or body == "null" else _decode(body),
        source=taken.source,
        mark=mark,
    )


def _micros(moment: datetime) -> int:
    """Return the µs since the epoch. Subclasses may subtract as they like, so that is not asked of them."""
    offset = moment.utcoffset()
    if offset is None:
        raise ValueError(f"The moment {moment.isoformat()} has no time zone. Give it one, for example datetime.UTC.")
    days = moment.toordinal() - _EPOCH_DAY
    seconds = ((days * 24 + moment.hour) * 60 + moment.minute) * 60 + moment.second
    return seconds * 1_000_000 + moment.microsecond - (micros(offset) if offset else 0)


def micros(time: timedelta) -> int:
    """Return the µs of a stretch of time."""
    return (time.days * 86_400 + time.seconds) * 1_000_000 + time.microseconds
