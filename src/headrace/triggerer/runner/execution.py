"""One trigger written in Python, on the books of the runner: what it yields goes into the outbox."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
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
from headrace.triggerer.outbox.dead_letters import safe_letter
from headrace.triggerer.outbox.outbox import Outbox, OutboxItem
from headrace.triggerer.outbox.sink import event_item
from headrace.triggers.base import has_acks, stream_name
from headrace.wire.custody.events import EventItem

log = structlog.get_logger(__name__)


class TriggerExecution:
    """One trigger written in Python, which runs in a trigger process: its place on the stream, and what it fires.

    `subscribe`, then let a turn begin; to start again after a failure, do both again. With `run_id` a task run waits for it: one event is
    what it waits for. `opener`: it filters a shared stream.
    """

    __slots__ = ("_at", "_backlog", "_hub", "_index", "_opener", "_origin", "_outbox", "_run_id", "key", "running", "workload")

    def __init__(
        self,
        running: TriggerContext,
        workload: bytes,
        opener: StreamOpener | None,
        hub: SharedStreamManager,
        outbox: Outbox,
        backlog: Backlog,
        *,
        key: Hashable | None = None,
        run_id: str | None = None,
    ) -> None:
        self._run_id = run_id
        self._opener = opener
        self._hub = hub
        self._outbox = outbox
        self._backlog = backlog
        self.workload = workload
        self.key = key
        self._at = _At(key)
        # Not a method of this object: who has run would be freed by a full collection only, and what is frozen by none.
        self.running = running._replace(place=self._at)
        self._origin: Origin | None = None
        self._index = 0

    @property
    def trigger_id(self) -> int:
        """The trigger's id."""
        return self.running.trigger_id

    @property
    def acks(self) -> bool | None:
        """Whether the broker of its stream is advanced, so that it owes answers, or None if it polls alone."""
        return None if self._opener is None else has_acks(self._opener.kind)

    @property
    def awaited(self) -> bool:
        """Whether a task run waits for it."""
        return self._run_id is not None

    @property
    def mailbox(self) -> Subscription | None:
        """What comes from its stream, or None if it polls alone."""
        return self._at.mailbox

    def subscribe(self) -> None:
        """Join the shared stream, to begin with what is kept for it; a trigger that polls alone joins nothing."""
        if self._opener is None or self.key is None:
            return
        mailbox = self._at.mailbox
        if not self.acks and mailbox is not None and not mailbox.is_closed:
            return  # it was put back: what waits for it is nowhere else
        backlog = self._backlog if self.acks else None
        self._at.mailbox = self._hub.subscribe(trigger_id=self.trigger_id, trigger=self._opener, key=self.key, backlog=backlog)

    def fired(self, fired: Fired) -> None:
        """Put what the trigger yielded into the outbox."""
        self._outbox.put(self._pending(fired))

    def requeue(self) -> None:
        """Give the trigger its raw event again: it did not fail on it."""
        if self.key is None or self._at.mailbox is None:
            return
        if self.acks:
            self._hub.requeue(trigger_id=self.trigger_id, key=self.key)
        else:
            self._at.mailbox.requeue()

    @property
    def stream_error(self) -> Exception | None:
        """What the shared stream ended with under the trigger, and why, or None if it has not ended."""
        error = None if self._at.mailbox is None else self._at.mailbox.error
        return error if isinstance(error, StreamEnded) else None

    def fault(self, error: Exception) -> int:
        """Tell the stream that the trigger raised: what it is at comes again. Return how often that has failed; 0: it is at nothing.

        Whom the stream itself has let go, it need not be told.
        """
        with log_as(self.still()):
            attempts = 0 if self.key is None else self._hub.fault(trigger_id=self.trigger_id, key=self.key, error=error)
            if attempts:
                what = describe_error(error)
                log.warning("trigger raised", trigger=self.running.name, attempts=attempts, error=what, exc_info=error)
        return attempts

    def still(self) -> TriggerContext:
        """Return who runs, at the raw event that the filter is at now, also when it is at another."""
        place = self._at()
        return self.running._replace(place=lambda: place)

    async def leave(self) -> None:
        """Leave the stream."""
        if self.key is not None:
            await self._hub.unsubscribe(self.trigger_id, self.key)

    def _pending(self, fired: Fired) -> OutboxItem:
        """Return the item to store. An event that cannot be stored fails by itself, never the trigger."""
        # Also where the stream has ended meanwhile: the raw event comes again, and what is made of it then is this same event.
        mailbox = self._at.mailbox
        seq, origin = (None, None) if mailbox is None else (mailbox.bind(), mailbox.origin)
        place = self._at() or EventOrigin(f"trigger:{self.running.name}" if self.key is None else stream_name(self.key))
        name = self._name(origin)
        try:
            return OutboxItem(_item(fired, name, place, self.trigger_id), seq)
        except Exception as error:  # whatever a user's value does: it is this event's alone
            reason = fired.reason or describe_text(error)
        if self._run_id is not None:
            payload = msgspec.json.encode(f"What the trigger fired cannot be written as JSON: {reason}")
            return self._pending(Fired(fired.turn, fired.generation, payload, None, None, None, None, RUN_FAILED, None))
        log.error("event cannot be stored, kept as a dead letter", trigger=self.running.name, id=name, error=reason)
        if seq is not None:
            self._hub.mark_rejected(seq)
        letter = safe_letter(
            id=f"{place.stream}/{name}",
            kind="unserialisable",
            reason=f"The payload cannot be written as JSON, or a field is not valid: {reason}",
            stream=place.stream,
            lane=None,
            position=None,
            raw=fired.shown or (fired.payload or b"").decode(errors="replace"),
            trigger_ids=[self.trigger_id],
        )
        return OutboxItem(letter, seq)

    def _name(self, origin: Origin | None) -> str:
        """Return an id for an event that has none: the same again when the same raw event comes again, where that can be known."""
        place = None if origin is None else origin.delivery_id if origin.position is None else origin.position
        if origin is None or place is None:
            return f"{self.running.name}/{uuid4().hex}"
        # Not the same place but the same delivery: what comes again, to a filter that was started again, is to get the same ids again.
        self._index = self._index + 1 if origin is self._origin else 0
        self._origin = origin
        return storable_id(f"{self.running.name}/{id_part(origin.lane)}/{id_part(str(place))}/{self._index}")


def _item(fired: Fired, name: str, place: EventOrigin, trigger_id: int) -> EventItem:
    """Return the wire form of an event. Raises `ValueError` for what no store takes."""
    if fired.payload is None:
        raise ValueError(fired.reason)
    sealed = EventFields(
        id=fired.id or name,
        source=fired.source or storable_id(f"headrace:{place.stream}"),
        type=fired.kind or "headrace.trigger",
        subject=fired.subject,
        occurred=None if fired.occurred is None else datetime.fromisoformat(fired.occurred),
        follows=fired.follows,
    )
    item = event_item(sealed, fired.payload.decode(), [trigger_id], place)
    if item.occurred is not None and not in_range(item.occurred):
        raise ValueError("Its `occurred` is not within the years 1 to 9999 in UTC.")
    for field in ("id", "source", "type", "subject", "follows"):
        text = getattr(item, field)
        if text is not None and not is_storable(text):
            raise ValueError(f"Its `{field}` has a NUL or half of a surrogate pair.")
    return item


class _At:
    """Returns the place of the raw event that a trigger's filter is at, from any thread, or None if it is at none."""

    __slots__ = ("_key", "mailbox")

    def __init__(self, key: Hashable | None) -> None:
        self._key = key
        self.mailbox: Subscription | None = None

    def __call__(self) -> EventOrigin | None:
        at = None if self.mailbox is None else self.mailbox.at
        if self._key is None or at is None:
            return None
        origin, raw = at
        return EventOrigin(stream_name(self._key), origin.lane, origin.position, trace_of(raw))
