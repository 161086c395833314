"""What users subclass: a trigger that polls alone, or one that filters a shared stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Hashable
from typing import Any

from headrace.core.values.text import MAX_TEXT_CHARS, clean_name
from headrace.triggers.event import SKIP, Handled, Reject, TriggerEvent, reject_shared_stream_event
from headrace.triggers.upstream import SharedStreamProducer


class BaseTrigger(ABC):
    """A trigger that polls alone."""

    def __init__(self, **kwargs: Any) -> None:
        """Accept and ignore what a subclass hands up."""
        del kwargs
        super().__init__()

    @abstractmethod
    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path, and the keyword arguments (JSON) that make an equal trigger elsewhere."""

    @abstractmethod
    def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield a trigger event whenever the trigger fires; an async generator."""

    async def cleanup(self) -> None:
        """Release what the trigger holds; called when it is no longer needed here.

        For a trigger that a task run waits for: when nothing waits on it any more, since it fired, its time is up or the run was cancelled.
        Never when it only moves to another triggerer: so this is the place to cancel what was submitted elsewhere.
        """
        return

    def __repr__(self) -> str:
        classpath, kwargs = self.serialize()
        return f"<{classpath} {' '.join(f'{name}={value!r}' for name, value in kwargs.items())}>"


class BaseEventTrigger(BaseTrigger):
    """A trigger that may share one poll with others: all whose `shared_stream_key` is equal.

    Write `handle` (one call for each raw event), or `filter_shared_stream` (the whole stream). Override
    `create_shared_stream_producer` for a stream whose broker is advanced, or `open_shared_stream` for one without acks.
    """

    def shared_stream_key(self) -> Hashable | None:
        """Return what names the shared stream, the same for the trigger's whole life, or None if the trigger polls alone, in `run()`."""
        return None

    @classmethod
    def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        """Yield raw events without end, or raise; an async generator, opened once for all triggers of the key. There are no acks.

        `kwargs` are those of any one of them: use only what is part of the key.
        """
        raise NotImplementedError(
            f"{cls.__name__} has a shared_stream_key, but neither open_shared_stream nor create_shared_stream_producer"
        )

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Return the producer of the shared stream; to override it is to turn acks on. It connects in `open_stream`, not here."""
        raise NotImplementedError(f"{cls.__name__} has no create_shared_stream_producer")

    async def filter_shared_stream(self, stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Yield the trigger events for the raw events of `stream`, each before the next raw event is pulled; an async generator."""
        async for raw in stream:
            match await self.handle(raw):
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
        """Answer one raw event: a trigger event, several, `SKIP` or `Reject(reason)`."""
        raise NotImplementedError(f"{type(self).__name__} has a shared_stream_key, but neither handle nor filter_shared_stream")

    def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield trigger events from a poll of its own; an async generator, for a trigger without a `shared_stream_key`."""
        raise NotImplementedError(f"{type(self).__name__} has no run()")


def has_acks(trigger: type[BaseEventTrigger]) -> bool:
    """Whether the triggers of this class read a stream whose broker is advanced."""
    own = trigger.__mro__[: trigger.__mro__.index(BaseEventTrigger)]
    return any("create_shared_stream_producer" in vars(kind) for kind in own)


def stream_name(key: Hashable) -> str:
    """Return the text of a stream key, the same in every process; every store can hold it."""
    return clean_name(key if isinstance(key, str) else repr(key), MAX_TEXT_CHARS)
