"""Events of a causal order, and their conversion from and to the store's form."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import msgspec

from headrace.core.ordering.delivery import OrderedEvent

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalEvent:
    """An event with the id of its leader, if it has one; `payload` is any JSON.

    `source` and `id` identify an event, and a leader has the same `source`. `occurred` orders events that are ready together. `received`,
    if given, is the time of arrival: age and waiting time are counted from it. `mark` is lost, late or cycle for a released event.
    """

    id: str
    occurred: datetime
    follows: str | None = None
    payload: Any = None
    source: str = ""
    mark: str | None = None
    received: datetime | None = None


def to_ordered(event: CausalEvent) -> OrderedEvent:
    """Return the store's form of an event."""
    received = None if event.received is None else _micros(event.received)
    payload = event.payload
    body = "null" if payload is None else _encode(payload).decode()
    return OrderedEvent.of(event.source, event.id, event.follows, _micros(event.occurred), body, received)


def causal_event(taken: OrderedEvent, mark: str | None = None) -> CausalEvent:
    """Return the event of a store's form."""
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
    """Return microseconds since the epoch. Computed from the fields, since subclasses may override subtraction."""
    offset = moment.utcoffset()
    if offset is None:
        raise ValueError(f"The moment {moment.isoformat()} has no time zone. Give it one, for example datetime.UTC.")
    days = moment.toordinal() - _EPOCH_DAY
    seconds = ((days * 24 + moment.hour) * 60 + moment.minute) * 60 + moment.second
    return seconds * 1_000_000 + moment.microsecond - (micros(offset) if offset else 0)


def micros(time: timedelta) -> int:
    """Return a duration in microseconds."""
    return (time.days * 86_400 + time.seconds) * 1_000_000 + time.microseconds
