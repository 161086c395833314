"""The messages that a reader holds: their receipts, the ends of their leases, and which of them are answered. No clock, no I/O.

A message is *held* from its receipt until its acknowledgement is confirmed. A held message that is received again, because its lease has
ended, keeps its place and gets the new receipt, so that no message is delivered twice in one opening.

A failed message is *abandoned*: it is neither acknowledged nor extended. If the queue is ordered, all later held messages of its group are
abandoned with it. They come again by themselves, in their order, since a queue delivers no message of a group before an earlier one.
A message without a group has no order, also in an ordered queue.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from headrace.core.ledger.outcome import AdvanceItem

MAX_FINISHED_IDS: Final = 100_000
"""Ids of answered messages whose receipt was too old. They are acknowledged when they come again."""


class Lease:
    """One held message. Its lease of `seconds` ends at `until`."""

    __slots__ = ("deliveries", "group", "id", "is_held", "is_lost", "lane", "open_parts", "order", "receipt", "seconds", "until")

    def __init__(self, id: str, receipt: str, group: str | None, lane: str, parts: int, order: int) -> None:
        self.id = id
        self.receipt = receipt
        self.group = group
        self.lane = lane
        self.order = order
        self.deliveries = 1
        self.seconds = 0.0
        self.until = 0.0
        self.open_parts = set(range(parts))
        self.is_held = True
        self.is_lost = False
        """Whether the service refused to extend it: another reader may receive it."""

    def set(self, seconds: float, now: float) -> None:
        """Record that the lease ends `seconds` after `now`."""
        self.seconds, self.until = seconds, now + seconds


class Part(NamedTuple):
    """The broker payload of a raw event: one record of a message."""

    lease: Lease
    number: int


class Leases:
    """The leases of one opening. `first` and `extended` are their seconds at receipt and later. All times are those of one clock."""

    def __init__(self, first: float, extended: float, *, is_ordered: bool) -> None:
        self._first = first
        self._extended = extended
        self._is_ordered = is_ordered
        self._held: dict[str, Lease] = {}
        self._abandoned: dict[str, Lease] = {}
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._received = 0

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._held.values())

    def receive(self, id: str, receipt: str, group: str | None, lane: str, parts: int, now: float) -> Lease | None:
        """Return the lease of a received message, or None if it is held already.

        A message that was answered before has a lease without open parts: it must only be acknowledged.
        """
        lease = self._held.get(id)
        if lease is not None:
            lease.receipt, lease.is_lost = receipt, False
            lease.deliveries += 1
            lease.set(self._first, now)
            return None
        self._abandoned.pop(id, None)
        if id in self._finished:
            del self._finished[id]
            parts = 0
        self._received += 1
        lease = self._held[id] = Lease(id, receipt, group, lane, parts, self._received)
        lease.set(self._first, now)
        return lease

    def answer(self, batch: Iterable[AdvanceItem]) -> list[Lease]:
        """Record answers, in their order. Return the held messages of the batch that are answered completely."""
        leases: dict[Lease, None] = {}
        for (lease, number), outcome in batch:
            if not lease.is_held:
                continue
            if outcome.failed:
                self._abandon(lease)
                continue
            lease.open_parts.discard(number)
            leases[lease] = None
        return [lease for lease in leases if lease.is_held and not lease.open_parts]

    def drop(self, lease: Lease) -> None:
        """Record that the message is acknowledged."""
        self._drop(lease)

    def finish(self, lease: Lease) -> None:
        """Record that the message is not acknowledged with this receipt: it is when it comes again."""
        self._drop(lease)
        self._finished[lease.id] = None
        while len(self._finished) > MAX_FINISHED_IDS:
            self._finished.popitem(last=False)

    def abandon(self, lease: Lease) -> None:
        """Record that the message is neither acknowledged nor extended."""
        if lease.is_held:
            self._abandon(lease)

    def due(self, now: float) -> list[Lease]:
        """Return the leases of which half the time has passed."""
        self._abandoned = {id: lease for id, lease in self._abandoned.items() if lease.until > now}
        return [lease for lease in self._held.values() if lease.until - now <= lease.seconds / 2 and not lease.is_lost]

    def extend(self, lease: Lease, now: float) -> None:
        """Record that the lease was extended at `now`."""
        lease.set(self._extended, now)

    def to_release(self, now: float) -> list[list[Lease]]:
        """Return all leases that have not ended, in steps to be released one after the other.

        The first message of each group is in the last step, so that the next reader receives no later message before it.
        """
        leases = [lease for lease in (*self._abandoned.values(), *self._held.values()) if lease.until > now and not lease.is_lost]
        if not self._is_ordered:
            return [leases]
        leases.sort(key=_order)
        first: dict[Hashable, Lease] = {}
        for lease in leases:
            first.setdefault(lease.group, lease)
        later = [lease for lease in reversed(leases) if first[lease.group] is not lease]
        return [later, list(first.values())]

    def _abandon(self, lease: Lease) -> None:
        later: Sequence[Lease] = (lease,)
        if self._is_ordered and lease.group is not None:
            later = [one for one in self._held.values() if one.group == lease.group and one.order >= lease.order]
        for one in later:
            self._drop(one)
            self._abandoned[one.id] = one

    def _drop(self, lease: Lease) -> None:
        lease.is_held = False
        if self._held.get(lease.id) is lease:
            del self._held[lease.id]


def _order(lease: Lease) -> int:
    return lease.order
