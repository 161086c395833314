"""An upstream that is nothing but memory, for tests: all of a process that name it share it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from headrace.sources.memory.producer import MemoryProducer
from headrace.sources.memory.store import MemoryStore
from headrace.sources.message import Key, Message, SentMessage, draft, drafts
from headrace.triggers.upstream import Upstream

_STORES: Final[dict[str, MemoryStore]] = {}


class Memory(Upstream):
    """The queue in memory with that `name`; it is there as long as the process, or until it is cleared.

    It keeps its promises as a `Queue` does, but for one: nothing outlives the process. `lanes` as for a `Queue`; the first to name it
    decides, others that give None take it as it is.
    """

    def __init__(self, name: str, lanes: int | list[str] | None = None) -> None:
        self._name = name
        self._lanes = lanes
        self._store().lay_out(lanes)

    def stream_key(self) -> str:
        """Return `memory:` and the name."""
        return f"memory:{self._name}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path, and the name and lanes."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {"name": self._name, "lanes": self._lanes}

    def producer(self) -> MemoryProducer:
        """Return a new producer; one at a time may have its stream open."""
        producer = MemoryProducer(self._store())
        producer.upstream = self
        return producer

    @property
    def event_type(self) -> str:
        """The type of an event made of a message whose watch does not say otherwise."""
        return "headrace.memory.message"

    def send(self, value: Any, *, lane: str | None = None, key: str | None = None) -> SentMessage:
        """Send one JSON value, or a `msgspec.Raw` of JSON text, from any thread; raises `UsageError` when it cannot be sent."""
        return self._store().append([draft(value, lane, key)])[0]

    def send_many(self, values: Iterable[Any], *, lane: str | None = None, key: Key = None) -> int:
        """Send the values, all or none, and return how many."""
        return len(self._store().append(drafts(values, lane, key)))

    def dead_letters(self) -> list[Message]:
        """Return what was rejected."""
        return list(self._store().dead_letters)

    def clear(self) -> None:
        """Forget everything there is under this name; positions start again."""
        _STORES.pop(self._name, None)
        self._store().lay_out(self._lanes)

    def _store(self) -> MemoryStore:
        return _STORES.setdefault(self._name, MemoryStore(self._name))
