"""The messages of one queue in memory. Any thread may send, one loop reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from threading import Lock

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import StreamEnded, UpstreamError
from headrace.sources.outgoing import LaneLayout, LaneNames, OutgoingMessage, SentMessage
from headrace.triggers.raw_event import Message


class MemoryLane:
    """One lane: the remaining messages, by position. `last` is the last position assigned, `read` the last one read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last = 0
        self.read = 0
        self.messages: dict[int, Message] = {}

    @property
    def committed(self) -> int | None:
        """Return the position before the oldest remaining message, or None until the first is deleted."""
        return (next(iter(self.messages)) - 1 if self.messages else self.last) or None

    def take(self, limit: int) -> list[Message]:
        """Return the next messages, and move past them."""
        taken: list[Message] = []
        while self.read < self.last and len(taken) < limit:
            self.read += 1
            if (message := self.messages.get(self.read)) is not None:
                message.delivery = (message.delivery or 0) + 1
                taken.append(Message(message.data, self.name, message.position, message.key, message.delivery))
        return taken


class MemoryStore:
    """The lanes of one name, its dead letters, and its reader."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lanes: dict[str, MemoryLane] = {}
        self.dead_letters: list[Message] = []
        self._lock = Lock()
        self._layout = LaneLayout.of(1)
        self._laid_out = False
        self._turn = count()
        self._reader: object | None = None
        self._wake: Callable[[], None] | None = None

    def lay_out(self, lanes: LaneNames) -> None:
        """Set the lane layout at its first use. Raises `UpstreamError` if a later use has another one."""
        if lanes is None:
            return
        layout = LaneLayout.of(lanes)
        with self._lock:
            if self._laid_out and layout != self._layout:
                raise UpstreamError(f"The memory queue {self.name!r} has other lanes already.", hint="Give another name, or clear it.")
            self._layout, self._laid_out = layout, True

    def append(self, drafts: Sequence[OutgoingMessage]) -> list[SentMessage]:
        """Put the messages at the ends of their lanes, all or none."""
        with self._lock:
            names = [self._layout.choose(draft, self._turn) for draft in drafts]
            sent = []
            for name, draft in zip(names, drafts, strict=True):
                lane = self.lanes.setdefault(name, MemoryLane(name))
                lane.last += 1
                lane.messages[lane.last] = Message(draft.data, name, lane.last, draft.key, 0)
                sent.append(SentMessage(name, lane.last))
            if self._wake is not None:
                self._wake()
        return sent

    def take_over(self, reader: object, wake: Callable[[], None]) -> None:
        """Register `reader` as the reader, from the oldest messages on. `wake` is called, in any thread, when there are more."""
        with self._lock:
            if self._reader is not None:
                raise UpstreamError(f"The memory queue {self.name!r} is being read already.", hint="Close the other producer first.")
            self._reader, self._wake = reader, wake
            for lane in self.lanes.values():
                lane.read = 0 if not lane.messages else next(iter(lane.messages)) - 1

    def release(self, reader: object) -> None:
        """Release the queue if `reader` reads it."""
        with self._lock:
            if self._reader is reader:
                self._reader = self._wake = None

    def fetch(self, limit_per_lane: int) -> list[Message]:
        """Return the next messages of all lanes."""
        with self._lock:
            return [message for lane in self.lanes.values() for message in lane.take(limit_per_lane)]

    def commit(self, reader: object, batch: Sequence[AdvanceItem]) -> None:
        """Delete answered messages, store rejected ones as dead letters, and leave failed ones for the next reader."""
        with self._lock:
            if self._reader is not reader:
                raise StreamEnded(f"The reading of the memory queue {self.name!r} has ended.")
            for message, outcome in batch:
                if outcome.failed:
                    continue
                lane = self.lanes.get(message.lane)
                deleted = None if lane is None else lane.messages.pop(message.position, None)
                if deleted is not None and outcome.rejected:
                    self.dead_letters.append(deleted)
