"""One trigger written in Python at work: what it yields goes into the outbox."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Hashable
from uuid import uuid4

import msgspec
import structlog

from headrace.core.envelope import Sealed
from headrace.core.limits import MAX_JSON_DEPTH, has_non_finite, is_too_deep
from headrace.core.moments import in_range
from headrace.core.texts import describe_error, describe_text, describe_value, is_storable, storable_id
from headrace.engine.current import Place, Running, speaking_for, trace_of
from headrace.engine.letters import safe_letter
from headrace.engine.outbox import Outbox, Pending
from headrace.engine.sealer import event_item
from headrace.errors import ProjectError, StreamEnded
from headrace.streams.backlog import Backlog
from headrace.streams.hub import Mailbox, Origin, SharedStreamManager
from headrace.triggers.base import BaseEventTrigger, BaseTrigger, has_acks, stream_name
from headrace.triggers.event import RunFailed, TriggerEvent
from headrace.wire.events import EventItem

log = structlog.get_logger(__name__)


class Firing:
    """Runs one trigger. `subscribe` at once, then `run`; to start again after a failure, do both again.

    With `run_id` a task run waits for it: one event is what it waits for, and there will be one.
    """

    __slots__ = ("_at", "_backlog", "_events", "_hub", "_index", "_origin", "_outbox", "_run_id", "_trigger", "key", "running")

    def __init__(
        self,
        running: Running,
        trigger: BaseTrigger,
        hub: SharedStreamManager,
        outbox: Outbox,
        backlog: Backlog,
        *,
        run_id: str | None = None,
    ) -> None:
        self._run_id = run_id
        self._trigger = trigger
        self._hub = hub
        self._outbox = outbox
        self._backlog = backlog
        self.key = _key(trigger)
        self._at = _At(self.key)
        # Not a method of this object: who has run would be freed by a full collection only, and what is frozen by none.
        self.running = running._replace(place=self._at)
        self._origin: Origin | None = None
        self._index = 0
        self._events: AsyncIterator[TriggerEvent] | None = None

    @property
    def trigger_id(self) -> int:
        """The trigger's id."""
        return self.running.trigger_id

    @property
    def has_acks(self) -> bool:
        """Whether the broker of its stream is advanced, so that it owes answers."""
        return isinstance(self._trigger, BaseEventTrigger) and has_acks(type(self._trigger))

    def subscribe(self) -> None:
        """Join the shared stream, synchronously, to begin with what is kept for it; a trigger that polls alone begins in `run`."""
        if isinstance(self._trigger, BaseEventTrigger) and self.key is not None:
            backlog = self._backlog if self.has_acks else None
            self._at.mailbox = self._hub.subscribe(trigger_id=self.trigger_id, trigger=self._trigger, key=self.key, backlog=backlog)
            self._events = self._trigger.filter_shared_stream(self._at.mailbox)
        else:
            self._events = self._trigger.run()

    async def run(self) -> None:
        """Put whatever the trigger yields into the outbox, until it returns or raises."""
        if self._events is None:
            raise RuntimeError("subscribe comes before run")
        if self._run_id is not None:
            self._outbox.put(self._pending(await _first(self._events)))
            return
        async for event in self._events:
            self._outbox.put(self._pending(event))
            await self._outbox.room()

    @property
    def has_stream_ended(self) -> bool:
        """Whether the shared stream ended under the trigger: whatever its filter made of that, it is no failure of its own."""
        mailbox = self._at.mailbox
        return mailbox is not None and isinstance(mailbox.error, StreamEnded)

    def fault(self, error: Exception) -> int:
        """Tell the stream that the trigger raised: what it is at comes again. Return how often that has failed; 0: it is at nothing.

        Whom the stream itself has let go, it need not be told.
        """
        with speaking_for(self.still()):
            attempts = 0 if self.key is None else self._hub.fault(trigger_id=self.trigger_id, key=self.key, error=error)
            if attempts:
                what = describe_error(error)
                log.warning("trigger raised", trigger=self.running.name, attempts=attempts, error=what, exc_info=error)
        return attempts

    def still(self) -> Running:
        """Return who runs, at the raw event that the filter is at now, also when it is at another."""
        place = self._at()
        return self.running._replace(place=lambda: place)

    async def leave(self) -> None:
        """Leave the stream."""
        if self.key is not None:
            await self._hub.unsubscribe(self.trigger_id, self.key)

    async def cleanup(self, *, dropped: bool = False) -> None:
        """Let the trigger release what it holds: one that a run waits for only when it is `dropped`."""
        if self._run_id is None or dropped:
            await self._trigger.cleanup()

    def _pending(self, event: TriggerEvent) -> Pending:
        """Return the item to store. An event that cannot be JSON fails by itself, never the trigger.

        Raises:
            TypeError: The trigger yielded something else: that is a fault of its code.
        """
        if not isinstance(event, TriggerEvent):
            raise TypeError(f"The trigger yielded a {type(event).__name__}. Yield a TriggerEvent.")
        # Also where the stream has ended meanwhile: the raw event comes again, and what is made of it then is this same event.
        mailbox = self._at.mailbox
        seq, origin = (None, None) if mailbox is None else (mailbox.bind(), mailbox.origin)
        place = self._at() or Place(f"trigger:{self.running.name}" if self.key is None else stream_name(self.key))
        name = self._name(origin)
        try:
            return Pending(_item(event, name, place, self.trigger_id), seq)
        except Exception as error:  # whatever a user's value does: it is this event's alone
            reason = _reason(error)
        if self._run_id is not None:
            return self._pending(RunFailed(f"What the trigger fired cannot be written as JSON: {reason}"))
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
            raw=describe_value(event),
            trigger_ids=[self.trigger_id],
        )
        return Pending(letter, seq)

    def _name(self, origin: Origin | None) -> str:
        """Return an id for an event that has none: the same again when the same raw event comes again, where that can be known."""
        place = None if origin is None else origin.delivery_id if origin.position is None else origin.position
        if origin is None or place is None:
            return f"{self.running.name}/{uuid4().hex}"
        # Not the same place but the same delivery: what comes again, to a filter that was started again, is to get the same ids again.
        self._index = self._index + 1 if origin is self._origin else 0
        self._origin = origin
        return storable_id(f"{self.running.name}/{origin.lane}/{place}/{self._index}")


def _item(event: TriggerEvent, name: str, place: Place, trigger_id: int) -> EventItem:
    """Return the wire form of an event. Raises whatever its values raise, and `ValueError` for what no store takes."""
    encoded = msgspec.json.encode(event.payload)
    if is_too_deep(encoded):
        raise ValueError(f"The payload is nested deeper than {MAX_JSON_DEPTH} levels.")
    if b"null" in encoded and has_non_finite(event.payload):
        raise ValueError("The payload has a NaN or an Infinity, which JSON has not.")
    sealed = Sealed(
        id=event.id or name,
        source=event.source or storable_id(f"headrace:{place.stream}"),
        type=event.type or "headrace.trigger",
        subject=event.subject,
        occurred=event.occurred,
        follows=event.follows,
    )
    item = event_item(sealed, encoded.decode(), [trigger_id], place)
    if item.occurred is not None and not in_range(item.occurred):
        raise ValueError("Its `occurred` is not within the years 1 to 9999 in UTC.")
    for field in ("id", "source", "type", "subject", "follows"):
        text = getattr(item, field)
        if text is not None and not is_storable(text):
            raise ValueError(f"Its `{field}` has a NUL or half of a surrogate pair.")
    return item


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"It is nested deeper than {MAX_JSON_DEPTH} levels, or contains itself."
    return describe_text(error)


class _At:
    """Returns the place of the raw event that a trigger's filter is at, from any thread; None: it is at none."""

    __slots__ = ("_key", "mailbox")

    def __init__(self, key: Hashable | None) -> None:
        self._key = key
        self.mailbox: Mailbox | None = None

    def __call__(self) -> Place | None:
        at = None if self.mailbox is None else self.mailbox.at
        if self._key is None or at is None:
            return None
        origin, raw = at
        return Place(stream_name(self._key), origin.lane, origin.position, trace_of(raw))


def _key(trigger: BaseTrigger) -> Hashable | None:
    """Return the key of the trigger's shared stream. Raises `ProjectError` where it cannot be one."""
    key = trigger.shared_stream_key() if isinstance(trigger, BaseEventTrigger) else None
    try:
        hash(key)
    except TypeError as error:
        raise ProjectError(
            f"{type(trigger).__name__}.shared_stream_key returned a {type(key).__name__}, which is not hashable.",
            hint="Return a string, or a tuple of strings.",
        ) from error
    return key


async def _first(events: AsyncIterator[TriggerEvent]) -> TriggerEvent:
    """Return the first event, and close what gives them; where there is none, one that fails the run that waits."""
    try:
        async for event in events:
            return event
        return RunFailed("The trigger ended without firing.")
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
