"""Base classes of triggers: for one that polls alone, and for one that filters a shared stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Hashable
from typing import Any

from headrace.core.values.text import MAX_TEXT_CHARS, clean_name
from headrace.errors import MalformedEvent
from headrace.triggers.event import SKIP, Handled, Reject, TriggerEvent, reject_shared_stream_event
from headrace.triggers.upstream import SharedStreamProducer


class BaseTrigger(ABC):
    """A trigger that polls alone."""

    def __init__(self, **kwargs: Any) -> None:
        """Accept and ignore keyword arguments of a subclass."""
        del kwargs
        super().__init__()

    @abstractmethod
    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the keyword arguments (JSON) that create an equal trigger in another process."""

    @abstractmethod
    def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield a trigger event each time the trigger fires. An async generator."""

    async def cleanup(self) -> None:
        """Release the resources of the trigger. Called when this process no longer needs it.

        For the trigger of a task run, it is called when the run no longer waits: the trigger has fired, or the run has timed out or was
        cancelled. It is not called when the trigger moves to another triggerer. Cancel work that was submitted elsewhere here.
        """
        return

    def __repr__(self) -> str:
        classpath, kwargs = self.serialize()
        return f"<{classpath} {' '.join(f'{name}={value!r}' for name, value in kwargs.items())}>"


class BaseEventTrigger(BaseTrigger):
    """A trigger that shares one poll with all triggers of the same `shared_stream_key`.

    Implement `handle` (one call for each raw event) or `filter_shared_stream` (the whole stream). Override `create_shared_stream_producer`
    for a broker that is advanced, or `open_shared_stream` for a stream without acknowledgement.
    """

    def shared_stream_key(self) -> Hashable | None:
        """Return the key of the shared stream, which never changes, or None if the trigger polls alone, in `run()`."""
        return None

    @classmethod
    def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        """Yield raw events without end; an async generator, opened once for all triggers of the key, without acknowledgement.

        `kwargs` are those of any one of the triggers: use only values that are part of the key.
        """
        raise NotImplementedError(
            f"{cls.__name__} has a shared_stream_key, but neither open_shared_stream nor create_shared_stream_producer"
        )

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Return the producer of the shared stream. Overriding it turns acknowledgement on. Connect in `open_stream`, not here."""
        raise NotImplementedError(f"{cls.__name__} has no create_shared_stream_producer")

    async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Yield trigger events for the raw events of `stream`, each before the next raw event is pulled; an async generator.

        A raw event whose value is malformed is rejected if `handle` reads it: a repetition would not change it.
        """
        async for raw in stream:
            try:
                handled = await self.handle(raw)
            except MalformedEvent as error:
                handled = Reject(str(error))
            match handled:
                case TriggerEvent() as event:
                    yield event
                case list() as events:
                    for event in events:
                        yield event
                case Reject(reason):
                    reject_shared_stream_event(reason)
                case answer if answer is not SKIP:
                    raise TypeError(
                        f"{type(self).__name__}.handle returned {answer!r}: return a TriggerEvent, a list of them, SKIP or Reject"
                    )

    async def handle(self, raw: Any) -> Handled:
        """Handle one raw event: return a trigger event, a list of them, `SKIP`, or `Reject(reason)`."""
        raise NotImplementedError(f"{type(self).__name__} has a shared_stream_key, but neither handle nor filter_shared_stream")

    def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield trigger events. An async generator, for a trigger without a `shared_stream_key`."""
        raise NotImplementedError(f"{type(self).__name__} has no run()")


def has_acks(trigger: type[BaseEventTrigger]) -> bool:
    """Return whether the triggers of this class read a stream whose broker is advanced."""
    own = trigger.__mro__[: trigger.__mro__.index(BaseEventTrigger)]
    return any("create_shared_stream_producer" in vars(kind) for kind in own)


def stream_name(key: Hashable) -> str:
    """Return a stream key as a text that is equal in all processes and that every store accepts."""
    return clean_name(key if isinstance(key, str) else repr(key), MAX_TEXT_CHARS)
