"""Make what shared streams decided into items to store: events of what matched, dead letters of what nobody can use, spills of the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import structlog
from pydantic import ValidationError

from headrace.core.envelope import Sealed
from headrace.core.tracing import traceparent_in
from headrace.engine.current import Place
from headrace.engine.outbox import Outbox, Pending
from headrace.errors import MissingField
from headrace.streams.matched import Malformed, Matched, Poisoned, Refused, Spilled
from headrace.triggers.raw import RawEvent
from headrace.wire.backlog import SpillItem
from headrace.wire.events import DeadLetterItem, DeadLetterKind, EventItem
from headrace.wire.model import rfc3339

Rejecting = Callable[[int], None]
Ended = Callable[[str, Sequence[int], Exception], None]
Failed = Callable[[str, int, Exception], None]

_RAW_KEPT = 64 * 1024  # characters of a raw event kept in a dead letter


class Sealer:
    """The `StreamSink` of a triggerer: everything it is given ends in the outbox, under the persist seq it came with."""

    def __init__(self, outbox: Outbox, mark_rejected: Rejecting, ended: Ended, failed: Failed) -> None:
        self._outbox = outbox
        self._mark_rejected = mark_rejected
        self._ended = ended
        self._failed = failed
        self._log = structlog.get_logger(__name__)

    def matched(self, matched: Matched) -> None:
        """Store the raw event as an event; when it lacks a declared field, as a dead letter."""
        try:
            sealed = matched.envelope.seal(matched.value, stream=matched.key, lane=matched.lane, position=matched.position)
            payload = matched.raw.data.decode()
            place = Place(matched.key, matched.lane, matched.position, traceparent_in(matched.value))
            item = event_item(sealed, payload, matched.trigger_ids, place)
        except MissingField as missing:
            self._reject(matched, "missing_field", str(missing))
        except ValidationError as error:
            self._reject(matched, "rejected", error.errors()[0]["msg"])
        else:
            self._outbox.put(Pending(item, matched.seq))

    def malformed(self, malformed: Malformed) -> None:
        """Keep a raw event that nobody could read as a dead letter."""
        self._reject(malformed, "malformed", malformed.reason)

    def ended(self, key: str, trigger_ids: tuple[int, ...], error: Exception) -> None:
        """Pass on that a stream is over for these triggers."""
        self._ended(key, trigger_ids, error)

    def failed(self, key: str, trigger_id: int, error: Exception) -> None:
        """Pass on that a filter is to be started again."""
        self._failed(key, trigger_id, error)

    def spilled(self, spilled: Spilled) -> None:
        """Keep a raw event in the backlogs of those who cannot take it now."""
        item = SpillItem(
            stream=spilled.key, lane=spilled.lane, position=spilled.position, raw=spilled.raw, triggers=list(spilled.trigger_ids)
        )
        self._outbox.put(Pending(item, spilled.seq))

    def poisoned(self, poisoned: Poisoned) -> None:
        """Keep a raw event that a filter failed on again and again."""
        times = [f"failed at {rfc3339(moment)}" for moment in poisoned.times]
        letter = dead_letter(poisoned, "failed", poisoned.reason, poisoned.raw, [poisoned.trigger_id])
        letter = letter.model_copy(update={"attempts": poisoned.attempts, "traceback": [*times, *poisoned.traceback]})
        self._outbox.put(Pending(letter, poisoned.seq))

    def refused(self, refused: Refused) -> None:
        """Keep a raw event that a filter refused."""
        reason = refused.reason or "The trigger rejected it."
        self._outbox.put(Pending(dead_letter(refused, "rejected", reason, refused.raw, [refused.trigger_id]), refused.seq))

    def _reject(self, what: Matched | Malformed, kind: DeadLetterKind, reason: str) -> None:
        self._log.warning("raw event rejected", stream=what.key, lane=what.lane, position=what.position, reason=reason)
        letter = dead_letter(what, kind, reason, readable(what.raw), what.trigger_ids)
        self._mark_rejected(what.seq)
        self._outbox.put(Pending(letter, what.seq))


class Placed(Protocol):
    """What has a place in a shared stream."""

    @property
    def key(self) -> str:
        """The stream."""
        ...

    @property
    def lane(self) -> str:
        """The lane."""
        ...

    @property
    def position(self) -> int | None:
        """The position in the lane."""
        ...


def dead_letter(what: Placed, kind: DeadLetterKind, reason: str, raw: str, trigger_ids: Sequence[int]) -> DeadLetterItem:
    """Return the wire form of a dead letter, with an id that is the same again when the raw event comes again."""
    who = f"/{trigger_ids[0]}" if kind in {"failed", "rejected"} else ""
    return DeadLetterItem(
        id=f"{what.key}/{what.lane}/{what.position}/{kind}{who}"[-1000:],
        kind=kind,
        reason=reason,
        stream=what.key,
        lane=what.lane,
        position=what.position,
        raw=raw[:_RAW_KEPT].replace("\0", "\N{REPLACEMENT CHARACTER}"),
        triggers=list(trigger_ids),
    )


def readable(raw: RawEvent) -> str:
    """Return a raw event as text for people, with U+FFFD where it is not UTF-8."""
    return raw.data[: 4 * _RAW_KEPT].decode(errors="replace")


def event_item(sealed: Sealed, payload: str, trigger_ids: Sequence[int], place: Place) -> EventItem:
    """Return the wire form of one event. Raises pydantic's `ValidationError` where a field is too long."""
    return EventItem(
        id=sealed.id,
        source=sealed.source,
        type=sealed.type,
        subject=sealed.subject,
        occurred=sealed.occurred,
        follows=sealed.follows,
        payload=payload,
        stream=place.stream,
        lane=place.lane,
        position=place.position,
        trace=place.trace,
        firings=list(trigger_ids),
    )
