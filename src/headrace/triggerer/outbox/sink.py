"""Convert the decisions of shared streams to items to store: events of matches, dead letters of unusable raw events, spills."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields as fields_of
from functools import partial
from operator import attrgetter
from typing import Any, Final

import structlog
from pydantic import TypeAdapter

from headrace.core.matching.envelope import Envelope, EventFields
from headrace.core.values.text import cut_lines, describe_error, describe_text
from headrace.errors import MissingField, WrongField
from headrace.streams.sink import Malformed, Matched, Poisoned, RejectedEvent, Spilled
from headrace.streams.subscribers.raw_text import dead_letter_text
from headrace.triggerer.context import EventOrigin, trace_of_value
from headrace.triggerer.outbox.dead_letters import MAX_RAW_BYTES, dead_letter
from headrace.triggerer.outbox.outbox import Outbox, OutboxItem
from headrace.wire.base import rfc3339
from headrace.wire.custody.backlog import SpillItem
from headrace.wire.custody.events import DeadLetterKind, EventItem

MarkRejected = Callable[[int], None]
OnStreamEnded = Callable[[str, Sequence[int], Exception], None]
OnFilterFailed = Callable[[str, int, Exception], None]

_origin: Final = partial(tuple.__new__, EventOrigin)
"""`EventOrigin` of a tuple, without the detour that every named tuple takes in Python."""
_ITEM_FIELDS: Final = tuple(field.name for field in fields_of(EventItem))
_item_values: Final = attrgetter(*_ITEM_FIELDS)
_check_item: Final = TypeAdapter(EventItem).validate_python


class OutboxSink:
    """The `StreamSink` of a triggerer: puts everything into the outbox, under the persist seq it came with."""

    def __init__(self, outbox: Outbox, mark_rejected: MarkRejected, ended: OnStreamEnded, failed: OnFilterFailed) -> None:
        self._outbox = outbox
        self._mark_rejected = mark_rejected
        self._ended = ended
        self._failed = failed
        self._log = structlog.get_logger(__name__)

    def matched(self, matched: Matched) -> None:
        """Store the raw event as an event, or as a dead letter of these watches if it cannot become one."""
        origin = _origin((matched.key, matched.lane, matched.position, trace_of_value(matched.raw, matched.value)))
        event = extract_event(
            matched.envelope,
            matched.value,
            matched.raw.data,
            matched.trigger_ids,
            origin,
            message_id=matched.message_id,
            assigned=matched.assigned,
        )
        if isinstance(event, EventItem):
            self._outbox.put(OutboxItem(event, matched.seq))
        else:
            # Watches with different envelopes have separate dead letters, because they may be answered separately.
            origin_id = matched.message_id if matched.assigned else None  # a sender may give two messages one id
            self._reject(matched._replace(message_id=origin_id), *event, who=matched.trigger_ids[0])

    def malformed(self, malformed: Malformed) -> None:
        """Store an unreadable raw event as a dead letter."""
        self._reject(malformed, "malformed", malformed.reason)

    def ended(self, key: str, trigger_ids: tuple[int, ...], error: Exception) -> None:
        """Report that a stream ended for these triggers."""
        self._ended(key, trigger_ids, error)

    def failed(self, key: str, trigger_id: int, error: Exception) -> None:
        """Request a restart of a filter."""
        self._failed(key, trigger_id, error)

    def spilled(self, spilled: Spilled) -> None:
        """Store a raw event in the backlogs of the triggers that cannot process it now."""
        item = SpillItem(
            stream=spilled.key,
            lane=spilled.lane,
            position=spilled.position,
            raw=spilled.raw,
            triggers=list(spilled.trigger_ids),
        )
        self._outbox.put(OutboxItem(item, spilled.seq))

    def poisoned(self, poisoned: Poisoned) -> None:
        """Store a raw event that exhausted a filter's attempts as a dead letter."""
        times = [f"failed at {rfc3339(moment)}" for moment in poisoned.times]
        lines = cut_lines(line for entry in poisoned.traceback for line in entry.splitlines())
        item = dead_letter(
            poisoned,
            "failed",
            poisoned.reason,
            poisoned.raw,
            [poisoned.trigger_id],
            who=poisoned.trigger_id,
            attempts=poisoned.attempts,
            traceback=[*times, *lines],
        )
        self._outbox.put(OutboxItem(item, poisoned.seq))

    def rejected(self, event: RejectedEvent) -> None:
        """Store a raw event that a filter rejected as a dead letter."""
        reason = "The trigger rejected it." if not event.reason else describe_text(event.reason)
        item = dead_letter(event, "rejected", reason, event.raw, [event.trigger_id], who=event.trigger_id)
        self._outbox.put(OutboxItem(item, event.seq))

    def _reject(self, what: Matched | Malformed, kind: DeadLetterKind, reason: str, who: int | None = None) -> None:
        self._log.warning("raw event rejected", stream=what.key, lane=what.lane, position=what.position, reason=reason)
        item = dead_letter(what, kind, reason, dead_letter_text(what.raw, MAX_RAW_BYTES + 1), what.trigger_ids, who=who)
        self._mark_rejected(what.seq)
        self._outbox.put(OutboxItem(item, what.seq))


def extract_event(
    envelope: Envelope,
    value: Any,
    data: bytes,
    trigger_ids: Sequence[int],
    origin: EventOrigin,
    *,
    message_id: str | None,
    assigned: bool = False,
) -> EventItem | tuple[DeadLetterKind, str]:
    """Return the event of one raw event, or the kind and the reason of its dead letter. Never raises.

    With `assigned`, the position differs at the next delivery, so that no id can derive from it.
    """
    try:
        position = None if assigned else origin.position
        fields = envelope.extract(value, stream=origin.stream, lane=origin.lane or "", position=position, message_id=message_id)
        return event_item(fields, data.decode(), trigger_ids, origin)
    except WrongField as wrong:
        return "wrong_field", str(wrong)
    except MissingField as missing:
        return "missing_field", str(missing)
    except Exception as error:  # an error of this raw event's data alone must not end the stream
        return "failed", f"It cannot be made into an event: {describe_error(error)}"


def event_item(fields: EventFields, payload: str, trigger_ids: Sequence[int], origin: EventOrigin) -> EventItem:
    """Return the wire form of one event whose fields an envelope has checked."""
    id, source, kind, subject, occurred, follows = fields
    stream, lane, position, trace = origin
    return EventItem(
        id=id,
        source=source,
        type=kind,
        subject=subject,
        occurred=occurred,
        follows=follows,
        trace=trace,
        payload=payload,
        stream=stream,
        lane=lane,
        position=position,
        firings=list(trigger_ids),
    )


def checked_event_item(fields: EventFields, payload: str, trigger_ids: Sequence[int], origin: EventOrigin) -> EventItem:
    """Return the wire form of one event. Raises pydantic's `ValidationError` if a field has another type or length."""
    item = event_item(fields, payload, trigger_ids, origin)
    return _check_item(dict(zip(_ITEM_FIELDS, _item_values(item), strict=True)))
