"""The records of the ledger: entries, lanes, subscribers and obligations. Only the ledger and its parts change them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

from msgspec import Struct

from headrace.core.ledger.outcome import AdvanceItem, Answer, Kind
from headrace.core.values.text import lane_name

_Kind = TypeVar("_Kind", bound=type[Struct])


def _mutable(kind: _Kind) -> _Kind:
    """Give a struct the attribute assignment of ordinary classes, for which the interpreter has specialized instructions.

    That of `Struct` takes three times as long; it adds only that the struct becomes known to the garbage collector when it first gets a
    container. These structs hold one from the beginning.
    """
    type.__setattr__(kind, "__setattr__", object.__setattr__)
    type.__setattr__(kind, "__delattr__", object.__delattr__)
    return kind


@_mutable
class PendingEvent(Struct, eq=False):
    """One raw event that waits for answers: `pending` of them. The others are counted by outcome; `acked` includes the pending ones.

    `order` is the order of publication. `owed` are the triggers that had to answer; `answers` are all answers but "filtered", or None
    without custody. `size` is in bytes. `copy`, if set, makes the copy of the raw event that one reader may change.
    """

    raw: Any
    payload: Any
    lane: Lane
    position: int | None
    published: float
    order: int
    size: int = 0
    pending: int = 0
    acked: int = 0
    rejected: int = 0
    failed: int = 0
    spilled: int = 0
    derived: bool = False
    answers: list[tuple[Kind, tuple[int, ...]]] | None = None
    owed: tuple[int, ...] = ()
    copy: Callable[[Any], Any] | None = None


@_mutable
class PendingBacklogEvent(PendingEvent, eq=False, kw_only=True):
    """One raw event from the backlog of one reader, which is in no lane. `payload` is its text.

    If it was open when it was spilled, it has no `number` until it is found in the backlog; `answer` holds its answer until then.
    `stream` is the one from which it was spilled, if another than the reader's: the trigger read another one before.
    """

    reader: Subscriber
    number: int | None
    attempts: int = 0
    answer: Answer | None = None
    stream: str | None = None

    @classmethod
    def read(
        cls, reader: Subscriber, number: int | None, raw: Any, text: str | None, lane: Hashable, *, position: int | None, now: float
    ) -> Self:
        """Return an entry that its reader owes an answer to."""
        return cls(raw, text, Lane(lane), position, now, -1, pending=1, answers=[], reader=reader, number=number)

    @classmethod
    def of(cls, reader: Subscriber, entry: PendingEvent, now: float) -> PendingBacklogEvent:
        """Return the backlog copy of an open entry. Its `order` is negative, as of all entries in no lane."""
        event = cls.read(reader, None, entry.raw, None, entry.lane.name, position=entry.position, now=now)
        event.order = -2 - entry.order
        return event


class Lane:
    """One open lane: its entries in the order of publication, and the last positions read and advanced.

    `key` is the producer's, `name` its text with a suffix, which the stream adds if it assigns the positions. `error` is of the last
    advance. `end` and `committed` are the producer's last answers, or `position_error` says why it had none.
    """

    __slots__ = (
        "advanced",
        "busy",
        "committed",
        "end",
        "entries",
        "error",
        "has_assigned_positions",
        "in_flight",
        "key",
        "name",
        "position_error",
        "read",
    )

    def __init__(self, key: Hashable, suffix: str = "") -> None:
        self.key = key
        self.name = lane_name(key, suffix)
        self.has_assigned_positions = bool(suffix)
        self.entries: deque[PendingEvent] = deque()
        self.busy = False
        self.in_flight = 0
        self.read: int | None = None
        self.advanced: int | None = None
        self.error: str | None = None
        self.end: int | None = None
        self.committed: int | None = None
        self.position_error: str | None = None

    @property
    def outstanding(self) -> int:
        """How many raw events of the lane are not advanced."""
        return len(self.entries) + self.in_flight


@_mutable
class PendingConfirmation(Struct, eq=False):
    """The items that a reader derived from one entry, until all are confirmed.

    Their seqs are `seq` and `more`, which is rarely needed and therefore rarely a list. `owed` counts the unconfirmed ones.
    """

    reader: Subscriber
    entry: PendingEvent
    seq: int
    more: list[int] | None = None
    owed: int = 1
    closed: bool = False
    rejected: bool = False

    def add(self, seq: int) -> None:
        """Add one more derived item."""
        self.owed += 1
        if self.more is None:
            self.more = []
        self.more.append(seq)


_NO_RETRIES: Mapping[str, object] = MappingProxyType({})


class Subscriber:
    """One reader: its `queue`, its `open` entry since `begun`, and its `unconfirmed` items. It is `idle` when it found nothing to read.

    A `registered` reader owes its answers whether it runs or not. It is `live` when it has read its backlog: only then does it read its
    queue, which has no entry older than the backlog. `held` is the entry that it gets next, before its queue. `settled`: the open entry
    has its answer. `obligations` are its unconfirmed spills and dead letters. `spilled` changes with each spill and each request to read
    the backlog again. While `retries` has lanes, the reader reads only its backlog. `unsettled` are the backlog numbers that it has read,
    `answers` wait to be settled there, and `moved` is the entry that was open when it was spilled, until it is found in the backlog.
    `stream` is the name of the stream of a registered reader.
    """

    __slots__ = (
        "answers",
        "begun",
        "binding",
        "held",
        "idle",
        "live",
        "moved",
        "obligations",
        "open",
        "queue",
        "registered",
        "retries",
        "settled",
        "spilled",
        "stream",
        "trigger_id",
        "unconfirmed",
        "unsettled",
        "who",
    )

    def __init__(self, trigger_id: int, *, registered: bool = False) -> None:
        self.trigger_id = trigger_id
        self.who = (trigger_id,)
        self.registered = registered
        self.live = not registered
        self.queue: deque[PendingEvent] = deque()
        self.held: PendingEvent | None = None
        self.open: PendingEvent | None = None
        self.begun = 0.0
        self.settled = False
        self.binding: PendingConfirmation | None = None
        self.unconfirmed: dict[PendingConfirmation, None] = {}
        self.idle = False
        self.spilled = 0
        self.obligations: dict[int, Obligation] = {}
        self.unsettled: dict[int, None] = {}
        self.answers: list[tuple[int, Answer]] = []
        self.moved: PendingBacklogEvent | None = None
        self.retries: Mapping[str, object] = _NO_RETRIES
        self.stream: str | None = None

    def recheck_backlog(self) -> None:
        """Make the reader read its backlog before it goes on, also if it is fetching a page now."""
        self.live = self.idle = False
        self.spilled += 1

    def due(self, timeout: float) -> float | None:
        """Return when the reader is overdue, or None if it owes no answer.

        A registered reader is timed from the begin of its open entry: it is not at fault for items that wait for the store.
        """
        if not self.registered:
            oldest = self.oldest()
            return None if oldest is None else oldest.published + timeout
        waits = self.held or (self.queue[0] if self.queue else None)
        due = None if waits is None else waits.published + timeout
        if self.open is None:
            return due
        begun = self.begun + timeout
        return begun if due is None else min(begun, due)

    def is_stuck(self, timeout: float, now: float) -> bool:
        """Whether its open entry is open for longer than `timeout`."""
        return self.open is not None and self.begun + timeout <= now

    def oldest(self) -> PendingEvent | None:
        """Return the oldest entry that the reader owes an answer to."""
        if self.unconfirmed:
            return next(iter(self.unconfirmed)).entry
        if self.open is not None and not self.settled:
            return self.open
        return self.queue[0] if self.queue else None

    def take_not_begun(self) -> list[PendingEvent]:
        """Remove and return the entries that the reader has not begun."""
        waiting = [*self.queue] if self.held is None else [self.held, *self.queue]
        self.held = None
        self.queue.clear()
        return waiting

    def has_not_ended(self, entry: PendingEvent) -> bool:
        """Whether `entry` is open or queued for the reader. Linear in its queue."""
        return (entry is self.open and not self.settled) or entry is self.held or entry in self.queue


class Obligation(Struct, eq=False):
    """One item to store that the triggers `who` owe together, and the kind of answer that it is. `readers` are theirs, if they have any."""

    entry: PendingEvent
    who: tuple[int, ...]
    kind: Kind
    readers: tuple[Subscriber, ...] = ()


class Spill(NamedTuple):
    """An entry to store in the backlogs of these readers, who owe it until `seq` is confirmed."""

    seq: int
    entry: PendingEvent
    readers: tuple[Subscriber, ...]


TriggerGroups: TypeAlias = Sequence[tuple[int, ...]]
"""Groups of declared triggers. Each group owes one item together."""
Published: TypeAlias = tuple[int, Sequence[Subscriber], Spill | None]
"""Result of `publish`: the seq of the first group (group `i` has this seq plus `i`), the readers to wake, and the spill, if any."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The resolved beginning of one lane, to advance in one call; `size` is in bytes. `entries` are the same ones, only with custody."""

    lane: Lane
    items: list[AdvanceItem]
    position: int | None
    entries: Sequence[PendingEvent] = ()
    size: int = 0
