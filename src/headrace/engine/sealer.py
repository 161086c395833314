"""Make what shared streams decided into items to store: matched raw events into events, unreadable ones into dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog
from pydantic import ValidationError

from headrace.core.envelope import Sealed
from headrace.engine.outbox import Outbox, Pending
from headrace.errors import MissingField
from headrace.streams.matched import Malformed, Matched
from headrace.wire.events import DeadLetterItem, DeadLetterKind, EventItem

Rejecting = Callable[[int], None]
Ended = Callable[[str, Sequence[int], Exception], None]

_RAW_KEPT = 64 * 1024  # characters of a raw event kept in a dead letter


class Sealer:
    """The `WatchSink` of a triggerer: everything it is given ends in the outbox, under the persist seq it came with."""

    def __init__(self, outbox: Outbox, mark_rejected: Rejecting, ended: Ended) -> None:
        self._outbox = outbox
        self._mark_rejected = mark_rejected
        self._ended = ended
        self._log = structlog.get_logger(__name__)

    def matched(self, matched: Matched) -> None:
        """Store the raw event as an event; when it lacks a declared field, as a dead letter."""
        try:
            sealed = matched.envelope.seal(matched.value, stream=matched.key, lane=matched.lane, position=matched.position)
            payload = matched.raw.data.decode()
            item = event_item(sealed, payload, matched.trigger_ids, stream=matched.key, lane=matched.lane, position=matched.position)
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

    def _reject(self, what: Matched | Malformed, kind: DeadLetterKind, reason: str) -> None:
        self._log.warning("raw event rejected", stream=what.key, lane=what.lane, position=what.position, reason=reason)
        letter = DeadLetterItem(
            id=f"{what.key}/{what.lane}/{what.position}/{kind}"[-1000:],
            kind=kind,
            reason=reason,
            stream=what.key,
            lane=what.lane,
            position=what.position,
            raw=what.raw.data[:_RAW_KEPT].decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}"),
            triggers=list(what.trigger_ids),
        )
        self._mark_rejected(what.seq)
        self._outbox.put(Pending(letter, what.seq))


def event_item(
    sealed: Sealed, payload: str, trigger_ids: Sequence[int], *, stream: str, lane: str | None = None, position: int | None = None
) -> EventItem:
    """Return the wire form of one event. Raises pydantic's `ValidationError` where a field is too long."""
    return EventItem(
        id=sealed.id,
        source=sealed.source,
        type=sealed.type,
        subject=sealed.subject,
        occurred=sealed.occurred,
        follows=sealed.follows,
        payload=payload,
        stream=stream,
        lane=lane,
        position=position,
        firings=list(trigger_ids),
    )
