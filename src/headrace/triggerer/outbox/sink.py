"""Make what shared streams decided into items to store: events of what matched, dead letters of unusable raw events, spills of the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import structlog
from pydantic import ValidationError

from headrace.core.matching.envelope import Envelope, EventFields
from headrace.core.tracing import traceparent_in
from headrace.core.values.text import cut_lines, describe_error, describe_text
from headrace.errors import MissingField, WrongField
from headrace.streams.sink import Malformed, Matched, Poisoned, RejectedEvent, Spilled
from headrace.triggerer.context import EventOrigin
from headrace.triggerer.outbox.dead_letters import MAX_RAW_BYTES, dead_letter
from headrace.triggerer.outbox.outbox import Outbox, OutboxItem
from headrace.triggers.raw_event import RawEvent
from headrace.wire.base import rfc3339
from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.events import DeadLetterKind, EventItem

Rejecting = Callable[[int], None]
Ended = Callable[[str, Sequence[int], Exception], None]
Failed = Callable[[str, int, Exception], None]


class OutboxSink:
    """The `StreamSink` of a triggerer: everything it is given ends in the outbox, under the persist seq it came with."""

    def __init__(self, outbox: Outbox, mark_rejected: Rejecting, ended: Ended, failed: Failed) -> None:
        self._outbox = outbox
        self._mark_rejected = mark_rejected
        self._ended = ended
        self._failed = failed
        self._log = structlog.get_logger(__name__)

    def matched(self, matched: Matched) -> None:
        """Store the raw event as an event; when it cannot be one, as a dead letter of these watches."""
        place = EventOrigin(matched.key, matched.lane, matched.position, traceparent_in(matched.value))
        sealed = seal(matched.envelope, matched.value, matched.raw.data, matched.trigger_ids, place)
        if isinstance(sealed, EventItem):
            self._outbox.put(OutboxItem(sealed, matched.seq))
        else:
            # Watches with another envelope have a letter of their own: they may be answered one by one.
            self._reject(matched, *sealed, who=matched.trigger_ids[0])

    def malformed(self, malformed: Malformed) -> None:
        """Store an unreadable raw event as a dead letter."""
        self._reject(malformed, "malformed", malformed.reason)

    def ended(self, key: str, trigger_ids: tuple[int, ...], error: Exception) -> None:
        """Pass on that a stream is over for these triggers."""
        self._ended(key, trigger_ids, error)

    def failed(self, key: str, trigger_id: int, error: Exception) -> None:
        """Request that a filter starts again."""
        self._failed(key, trigger_id, error)

    def spilled(self, spilled: Spilled) -> None:
        """Keep a raw event in the backlogs of those who cannot take it now."""
        item = SpillItem(
            stream=spilled.key,
            lane=spilled.lane,
            position=spilled.position,
            delivery_id=spilled.delivery_id,
            raw=spilled.raw,
            triggers=list(spilled.trigger_ids),
        )
        self._outbox.put(OutboxItem(item, spilled.seq))

    def poisoned(self, poisoned: Poisoned) -> None:
        """Keep a raw event that a filter failed on again and again."""
        times = [f"failed at {rfc3339(moment)}" for moment in poisoned.times]
        lines = cut_lines(line for entry in poisoned.traceback for line in entry.splitlines())
        letter = dead_letter(
            poisoned,
            "failed",
            poisoned.reason,
            poisoned.raw,
            [poisoned.trigger_id],
            who=poisoned.trigger_id,
            attempts=poisoned.attempts,
            traceback=[*times, *lines],
        )
        self._outbox.put(OutboxItem(letter, poisoned.seq))

    def refused(self, refused: RejectedEvent) -> None:
        """Keep a raw event that a filter refused."""
        reason = "The trigger rejected it." if not refused.reason else describe_text(refused.reason)
        letter = dead_letter(refused, "rejected", reason, refused.raw, [refused.trigger_id], who=refused.trigger_id)
        self._outbox.put(OutboxItem(letter, refused.seq))

    def _reject(self, what: Matched | Malformed, kind: DeadLetterKind, reason: str, who: int | None = None) -> None:
        self._log.warning("raw event rejected", stream=what.key, lane=what.lane, position=what.position, reason=reason)
        letter = dead_letter(what, kind, reason, readable(what.raw), what.trigger_ids, who=who)
        self._mark_rejected(what.seq)
        self._outbox.put(OutboxItem(letter, what.seq))


def seal(
    envelope: Envelope, value: Any, data: bytes, trigger_ids: Sequence[int], place: EventOrigin
) -> EventItem | tuple[DeadLetterKind, str]:
    """Return the event of one raw event, or the kind and the reason of its dead letter: whatever it is like, this raises nothing."""
    try:
        sealed = envelope.seal(value, stream=place.stream, lane=place.lane or "", position=place.position)
        return event_item(sealed, data.decode(), trigger_ids, place)
    except WrongField as wrong:
        return "wrong_field", str(wrong)
    except MissingField as missing:
        return "missing_field", str(missing)
    except ValidationError as error:
        return "rejected", error.errors()[0]["msg"]
    except Exception as error:  # of this raw event's data alone: it must not end the stream
        return "failed", f"It cannot be made into an event: {describe_error(error)}"


def readable(raw: RawEvent) -> str:
    """Return a raw event as text for people, with U+FFFD where it is not UTF-8."""
    return raw.data[: MAX_RAW_BYTES + 1].decode(errors="replace")


def event_item(sealed: EventFields, payload: str, trigger_ids: Sequence[int], place: EventOrigin) -> EventItem:
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
