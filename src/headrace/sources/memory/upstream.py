"""An upstream in memory, for tests. All uses of one name in a process share it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from headrace.sources.memory.producer import MemoryProducer
from headrace.sources.memory.store import MemoryStore
from headrace.sources.outgoing import Key, SentMessage, draft, drafts
from headrace.triggers.raw_event import Message
from headrace.triggers.upstream import Upstream

_STORES: Final[dict[str, MemoryStore]] = {}


class Memory(Upstream):
    """A queue in memory, shared by all that use the same name in this process, for tests.

    It behaves like a `Queue`, but its messages end with the process. `lanes` is as for a `Queue`: the first use of a name decides, and
    later uses may give None.
    """

    def __init__(self, name: str, lanes: int | list[str] | None = None) -> None:
        self._name = name
        self._lanes = lanes
        self._store().lay_out(lanes)

    def stream_key(self) -> str:
        """Return `memory:` with the name."""
        return f"memory:{self._name}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path, and the name and lanes."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {"name": self._name, "lanes": self._lanes}

    def producer(self) -> MemoryProducer:
        """Return a new producer. One producer at a time may read the queue."""
        producer = MemoryProducer(self._store())
        producer.upstream = self
        return producer

    @property
    def event_type(self) -> str:
        """The default type of an event that is made from a message."""
        return "headrace.memory.message"

    def send(self, value: Any, *, lane: str | None = None, key: str | None = None) -> SentMessage:
        """Send one JSON value, or a `msgspec.Raw` of JSON text, from any thread. Raises `UsageError` if it cannot be sent."""
        return self._store().append([draft(value, lane, key)])[0]

    def send_many(self, values: Iterable[Any], *, lane: str | None = None, key: Key = None) -> int:
        """Send the values, all or none, and return their number."""
        return len(self._store().append(drafts(values, lane, key)))

    def dead_letters(self) -> list[Message]:
        """Return the rejected messages."""
        return list(self._store().dead_letters)

    def clear(self) -> None:
        """Delete all messages of this name. Positions start again."""
        _STORES.pop(self._name, None)
        self._store().lay_out(self._lanes)

    def _store(self) -> MemoryStore:
        return _STORES.setdefault(self._name, MemoryStore(self._name))
