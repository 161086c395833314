"""One trigger written in Python: subscribes it to its stream and puts its events into the outbox."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
from typing import Any
from uuid import uuid4

import msgspec
import structlog

from headrace.core.matching.envelope import EventFields
from headrace.core.task_run import RUN_FAILED
from headrace.core.values.moments import in_range
from headrace.core.values.text import describe_error, describe_text, id_part, is_storable, storable_id
from headrace.errors import StreamEnded
from headrace.streams.backlog import Backlog
from headrace.streams.manager import SharedStreamManager
from headrace.streams.sink import Origin
from headrace.streams.subscribers.subscription import Subscription
from headrace.streams.upstream.producer_factory import StreamOpener
from headrace.triggerer.context import EventOrigin, TriggerContext, log_as, trace_of
from headrace.triggerer.ipc.trigger_messages import Fired
from headrace.triggerer.outbox.dead_letters import storable_dead_letter
from headrace.triggerer.outbox.outbox import Outbox, OutboxItem
from headrace.triggerer.outbox.sink import checked_event_item
from headrace.triggers.base import has_acks, stream_name
from headrace.wire.custody.events import EventItem

log = structlog.get_logger(__name__)


class TriggerExecution:
    """One trigger that runs in a trigger process: its subscription, and the events that it fires.

    Call `subscribe`, then begin a turn; to restart after a failure, do both again. With a `run_id`, a task run waits
    for this trigger, and it waits for one event. `opener`: how to open the shared stream that the trigger filters, or
    None.
    """

    __slots__ = (
        "_backlog",
        "_current_origin",
        "_index",
        "_manager",
        "_opener",
        "_origin",
        "_outbox",
        "_run_id",
        "context",
        "key",
        "workload",
    )

    def __init__(
        self,
        context: TriggerContext,
        workload: bytes,
        opener: StreamOpener | None,
        manager: SharedStreamManager,
        outbox: Outbox,
        backlog: Backlog,
        *,
        key: Hashable | None = None,
        run_id: str | None = None,
    ) -> None:
        self._run_id = run_id
        self._opener = opener
        self._manager = manager
        self._outbox = outbox
        self._backlog = backlog
        self.workload = workload
        self.key = key
        self._current_origin = _CurrentOrigin(key)
        # Not a bound method: the cycle would be freed only by a full collection, and frozen objects by none.
        self.context = context._replace(get_origin=self._current_origin)
        self._origin: Origin | None = None
        self._index = 0

    @property
    def trigger_id(self) -> int:
        """The trigger's id."""
        return self.context.trigger_id

    @property
    def acks(self) -> bool | None:
        """Whether its stream has a broker to advance, so that it owes answers, or None if it polls alone."""
        return None if self._opener is None else has_acks(self._opener.kind)

    @property
    def is_awaited(self) -> bool:
        """Whether a task run waits for it."""
        return self._run_id is not None

    @property
    def subscription(self) -> Subscription | None:
        """Its subscription to the stream, or None if it polls alone."""
        return self._current_origin.subscription

    def subscribe(self) -> None:
        """Subscribe to the shared stream, beginning with the backlog. Do nothing for a trigger that polls alone."""
        if self._opener is None or self.key is None:
            return
        subscription = self._current_origin.subscription
        if not self.acks and subscription is not None and not subscription.is_closed:
            return  # it was requeued: nothing else has its queued raw events
        backlog = self._backlog if self.acks else None
        self._current_origin.subscription = self._manager.subscribe(
            trigger_id=self.trigger_id, trigger=self._opener, key=self.key, backlog=backlog
        )

    def fired(self, fired: Fired) -> None:
        """Put a fired event into the outbox."""
        self._outbox.put(self._outbox_item(fired))

    def requeue(self) -> None:
        """Deliver the current raw event again: the trigger did not fail on it."""
        if self.key is None or self._current_origin.subscription is None:
            return
        if self.acks:
            self._manager.requeue(trigger_id=self.trigger_id, key=self.key)
        else:
            self._current_origin.subscription.requeue()

    @property
    def stream_error(self) -> Exception | None:
        """The error with which the shared stream ended, or None if it has not ended."""
        error = None if self._current_origin.subscription is None else self._current_origin.subscription.error
        return error if isinstance(error, StreamEnded) else None

    def record_failure(self, error: Exception) -> int:
        """Report to the stream that the trigger raised an error, so that its raw event is delivered again.

        Return the number of failures of this raw event, or 0 if the trigger has no current raw event. Triggers that the
        stream itself released need no report.
        """
        with log_as(self.frozen_context()):
            attempts = 0 if self.key is None else self._manager.record_failure(trigger_id=self.trigger_id, key=self.key, error=error)
            if attempts:
                what = describe_error(error)
                log.warning("trigger raised", trigger=self.context.name, attempts=attempts, error=what, exc_info=error)
        return attempts

    def frozen_context(self) -> TriggerContext:
        """Return the context with the filter's present origin, which does not change when the filter moves on."""
        origin = self._current_origin()
        return self.context._replace(get_origin=lambda: origin)

    async def leave(self) -> None:
        """Leave the stream."""
        if self.key is not None:
            await self._manager.unsubscribe(self.trigger_id, self.key)

    def _outbox_item(self, fired: Fired) -> OutboxItem:
        """Return the item to store. An event that cannot be stored becomes a dead letter; the trigger does not fail."""
        # This also holds if the stream has ended meanwhile: the raw event is delivered again and produces the same
        # event.
        subscription = self._current_origin.subscription
        seq, origin = (None, None) if subscription is None else (subscription.bind(), subscription.origin)
        event_origin = self._current_origin() or EventOrigin(f"trigger:{self.context.name}" if self.key is None else stream_name(self.key))
        name = self._name(origin)
        try:
            return OutboxItem(_item(fired, name, event_origin, self.trigger_id), seq, has_raw=False)
        except Exception as error:  # any error of a user's value affects this event only
            reason = fired.reason or describe_text(error)
        if self._run_id is not None:
            payload = msgspec.json.encode(f"What the trigger fired cannot be written as JSON: {reason}")
            return self._outbox_item(Fired(fired.turn, fired.generation, payload, {"type": RUN_FAILED}))
        log.error("event not storable, stored as a dead letter", trigger=self.context.name, id=name, error=reason)
        if seq is not None:
            self._manager.mark_rejected(seq)
        item = storable_dead_letter(
            id=f"{event_origin.stream}/{name}",
            kind="unserialisable",
            reason=f"The payload cannot be written as JSON, or a field is not valid: {reason}",
            stream=event_origin.stream,
            lane=None,
            position=None,
            raw=fired.preview or (fired.payload or b"").decode(errors="replace"),
            trigger_ids=[self.trigger_id],
        )
        return OutboxItem(item, seq)

    def _name(self, origin: Origin | None) -> str:
        """Return an id for an event without one. If possible, a redelivered raw event produces the same id."""
        if origin is None or (origin.message_id is None and origin.position is None):
            return f"{self.context.name}/{uuid4().hex}"
        key = f"{id_part(origin.lane)}/{origin.position}" if origin.message_id is None else id_part(origin.message_id)
        # Compare the delivery, not the position: a redelivery to a restarted filter must produce the same ids.
        self._index = self._index + 1 if origin is self._origin else 0
        self._origin = origin
        return storable_id(f"{self.context.name}/{key}/{self._index}")


def _item(fired: Fired, name: str, origin: EventOrigin, trigger_id: int) -> EventItem:
    """Return the wire form of an event. Raises `ValueError` for fields that no store accepts."""
    if fired.payload is None:
        raise ValueError(fired.reason)
    values: dict[str, Any] = {
        **fired.fields,
        "id": fired.fields.get("id") or name,
        "source": fired.fields.get("source") or storable_id(f"headrace:{origin.stream}"),
        "type": fired.fields.get("type") or "headrace.trigger",
    }
    if "occurred" in values:
        values["occurred"] = datetime.fromisoformat(values["occurred"])
    fields = EventFields(**values)
    item = checked_event_item(fields, fired.payload.decode(), [trigger_id], origin)
    if item.occurred is not None and not in_range(item.occurred):
        raise ValueError("Its `occurred` is not within the years 1 to 9999 in UTC.")
    for field, text in zip(EventFields._fields, fields, strict=True):
        if isinstance(text, str) and not is_storable(text):
            raise ValueError(f"Its `{field}` has a NUL or half of a surrogate pair.")
    return item


class _CurrentOrigin:
    """Returns the origin of the filter's current raw event, or None if it has none. Any thread may call it."""

    __slots__ = ("_key", "subscription")

    def __init__(self, key: Hashable | None) -> None:
        self._key = key
        self.subscription: Subscription | None = None

    def __call__(self) -> EventOrigin | None:
        at = None if self.subscription is None else self.subscription.at
        if self._key is None or at is None:
            return None
        origin, raw = at
        return EventOrigin(origin.stream or stream_name(self._key), origin.lane, origin.position, trace_of(raw))
