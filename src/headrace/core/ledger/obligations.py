"""What the ledger keeps books of: entries in lanes, and who owes them an answer. Only the ledger and its parts change these."""

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
    """One raw event on the books, with how many obligations are open and how the others ended; `acked` includes those that are open.

    `order` rises in the order of publication. `owed` are the triggers that had to answer it, `answers` how those did that made something
    of it, or None without custody. `size` is in bytes; `copy` makes the copy of the raw event that a reader may change, where it
    can.
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
    """One raw event from the backlog of one reader, in no lane's books; `payload` is its text.

    `number` is None for one that the reader was at already when it was spilled, until it is found in the backlog; `answer` then keeps how
    it was answered.
    """

    reader: Subscriber
    number: int | None
    attempts: int = 0
    answer: Answer | None = None

    @classmethod
    def read(
        cls, reader: Subscriber, number: int | None, raw: Any, text: str | None, lane: Hashable, *, position: int | None, now: float
    ) -> Self:
        """Return one that its reader owes an answer to."""
        return cls(raw, text, Lane(lane), position, now, -1, pending=1, answers=[], reader=reader, number=number)

    @classmethod
    def of(cls, reader: Subscriber, entry: PendingEvent, now: float) -> PendingBacklogEvent:
        """Return what will be kept of an entry that the reader is at; its `order` is negative as that of all that are in no lane."""
        kept = cls.read(reader, None, entry.raw, None, entry.lane.key, position=entry.position, now=now)
        kept.order = -2 - entry.order
        return kept


class Lane:
    """One open lane: its entries in the order of publication, and how far it has been read and advanced. `error`: of its last advance.

    `key` is the producer's, `name` its text. `end` and `committed` are what the producer said last, `trouble` why it could not.
    """

    __slots__ = ("advanced", "busy", "committed", "end", "entries", "error", "in_flight", "key", "name", "read", "trouble")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.name = lane_name(key)
        self.entries: deque[PendingEvent] = deque()
        self.busy = False
        self.in_flight = 0
        self.read: int | None = None
        self.advanced: int | None = None
        self.error: str | None = None
        self.end: int | None = None
        self.committed: int | None = None
        self.trouble: str | None = None

    @property
    def outstanding(self) -> int:
        """How many raw events of the lane are not advanced."""
        return len(self.entries) + self.in_flight


@_mutable
class PendingConfirmation(Struct, eq=False):
    """What a reader derived from one entry, until all of it is confirmed.

    `seq` and those in `more` (there are seldom any, so that it is seldom a list) are all of it, `owed` how many are not confirmed.
    """

    reader: Subscriber
    entry: PendingEvent
    seq: int
    more: list[int] | None = None
    owed: int = 1
    closed: bool = False
    rejected: bool = False

    def add(self, seq: int) -> None:
        """Take in one thing more that was derived from the entry."""
        self.owed += 1
        if self.more is None:
            self.more = []
        self.more.append(seq)


_NO_RETRIES: Mapping[str, object] = MappingProxyType({})


class Subscriber:
    """One subscriber: what waits for it, what it is at, and what it derived that is not yet confirmed. `idle`: it found nothing to read.

    A `registered` one owes its answers whether it runs or not: what it cannot take is spilled. It is `live` when it has read its backlog:
    only then does it read its queue, in which is nothing older than what is in the backlog. `held` is what it comes back to first; `begun`
    when it went on to what it is at; `claims` are its spills and dead letters that are not yet confirmed, `spilled` counts its spills and
    its looks back at its backlog; `retries` are its lanes that wait to be tried again: it reads its backlog only as long as there are any;
    `unsettled` are the numbers of the backlog that it has read; `answers` wait to be settled there; `moved` is what it was at when that
    was spilled, until it is found in the backlog.
    """

    __slots__ = (
        "answers",
        "begun",
        "binding",
        "claims",
        "held",
        "idle",
        "live",
        "moved",
        "open",
        "queue",
        "registered",
        "retries",
        "settled",
        "spilled",
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
        self.claims: dict[int, Obligation] = {}
        self.unsettled: dict[int, None] = {}
        self.answers: list[tuple[int, Answer]] = []
        self.moved: PendingBacklogEvent | None = None
        self.retries: Mapping[str, object] = _NO_RETRIES

    def recheck_backlog(self) -> None:
        """Make a reader read its backlog again before it goes on: it has new entries, perhaps while it requests a page."""
        self.live = self.idle = False
        self.spilled += 1

    def due(self, timeout: float) -> float | None:
        """Return when the reader is overdue, or None if it owes nothing that anyone waits for.

        A registered one is timed from when it went on to what it is at; what only waits for the store is not its fault.
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
        """Whether it is at the same raw event for longer than `timeout`."""
        return self.open is not None and self.begun + timeout <= now

    def oldest(self) -> PendingEvent | None:
        """Return the oldest entry that the reader owes an answer to."""
        if self.unconfirmed:
            return next(iter(self.unconfirmed)).entry
        if self.open is not None and not self.settled:
            return self.open
        return self.queue[0] if self.queue else None

    def take_not_begun(self) -> list[PendingEvent]:
        """Take from the reader all that it has not begun."""
        waiting = [*self.queue] if self.held is None else [self.held, *self.queue]
        self.held = None
        self.queue.clear()
        return waiting

    def has_not_ended(self, entry: PendingEvent) -> bool:
        """Whether the reader is at `entry` or has not come to it; linear in what waits for it."""
        return (entry is self.open and not self.settled) or entry is self.held or entry in self.queue


class Obligation(Struct, eq=False):
    """What the triggers `who` owe together: one thing to store, and what kind of answer it is. `readers`: theirs, where they have any."""

    entry: PendingEvent
    who: tuple[int, ...]
    kind: Kind
    readers: tuple[Subscriber, ...] = ()


@dataclass(slots=True)
class StreamCounters:
    """Raw events: published, advanced, and resolved with nothing derived, with a rejection, a failure, a spill; and how long it took.

    `ack_seconds` is the sum over the `resolved` ones of the time from publishing to the last answer; `advances` and `advance_errors` are
    calls that succeeded and that did not, `advance_seconds` the time of those that did.
    """

    read: int = 0
    advanced: int = 0
    filtered: int = 0
    rejected: int = 0
    failed: int = 0
    spilled: int = 0
    resolved: int = 0
    ack_seconds: float = 0.0
    advances: int = 0
    advance_errors: int = 0
    advance_seconds: float = 0.0


class Spill(NamedTuple):
    """An entry to be kept for these readers, who owe it until `seq` is confirmed."""

    seq: int
    entry: PendingEvent
    readers: tuple[Subscriber, ...]


Claims: TypeAlias = Sequence[tuple[int, ...]]
"""The declared triggers of each claim."""
Published: TypeAlias = tuple[int, Sequence[Subscriber], Spill | None]
"""What `publish` did: claim `i` has this seq plus `i`, these readers, idle until now, have something to read; and what to retain."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The resolved beginning of one lane, to be advanced in one call, `size` bytes. `entries`: the same, where custody is kept."""

    lane: Lane
    items: list[AdvanceItem]
    position: int | None
    entries: Sequence[PendingEvent] = ()
    size: int = 0
