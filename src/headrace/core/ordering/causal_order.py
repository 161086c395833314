"""Causal order: decides which events of a scope are released, which wait for their leader, and which have waited too long.

The law, which property tests check:

- An event waits if and only if its leader waits, or has not been offered yet. Every other event is released immediately.
- Waiting events form trees. A tree is released as a whole, from its root downwards, or not at all. So an event that stopped being a
  root never becomes one again, and only roots expire.
- With a `limit`, one call releases about that many waiting events. The rest of the tree, or of the cycle, waits for `release`, and no
  longer for its leader: it neither expires nor is lost.
- Only an event that others already wait for can close a cycle. The cycle is detected when that event is offered.

There is no list of released events: the log drops known ids, and adds to each event the `seq` of a leader that arrived before it.
The state consists of the waiting events and the keys of leaders given up as lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import Final, TypeAlias

from headrace.core.ordering.cycles import Cycle, detached, rebuilt, sort_key
from headrace.core.ordering.snapshot import OrderingSnapshot, SnapshotEvent, set_back

Offered: TypeAlias = tuple[int, bytes, bytes | None, int, int, str]
"""One event: (seq, key, leader's key or None, leader's seq or -1, occurred in µs, id)."""

LOST: Final = "lost"
LATE: Final = "late"
CYCLE: Final = "cycle"

GIVEN_UP_LIMIT: Final = 100_000
"""Limit of lost leaders in the state. Beyond it the oldest are pruned, and such a leader gets no `late` mark when it arrives."""

PRUNE_BATCH_SIZE: Final = 1_000
"""Lost leaders that one call prunes, approximately; the next calls prune the others."""

GIVEN_UP_MICROS: Final = 30 * 86_400_000_000
"""Time in µs after which a lost leader is pruned. A leader that arrives later has no `late` mark."""

_NOW: Final[Mapping[int, int]] = MappingProxyType({})


class Released:
    """Events to handle now, in this order, as columns: `seqs`, `marks` (None, LOST, LATE or CYCLE) and `waited` (µs)."""

    __slots__ = ("marks", "seqs", "waited")

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.marks: list[str | None] = []
        self.waited: list[int] = []

    def __len__(self) -> int:
        return len(self.seqs)

    def add(self, seq: int, mark: str | None, waited: int) -> None:
        """Append one event."""
        self.seqs.append(seq)
        self.marks.append(mark)
        self.waited.append(waited)


class CausalOrder:
    """The ordering of one scope. `now` and `lookback` are µs on the scope's clock, which only `turn_back` sets back.

    `position` counts the released events, `head` is the last seq offered, and `lost`, `late` and `cycles` are counters. With `by_age`, an
    event that is older than the lookback when it is offered, by its `occurred`, does not wait for a missing leader.
    `gave` has the leaders that the last call gave up, with the time; `pruned` has the earlier ones that it pruned. `releasing` has released
    events with followers that a `limit` left to `release`, and `breaking` the cycles, by the event that closed them.
    """

    def __init__(self, lookback: int, *, by_age: bool = False) -> None:
        self.lookback = lookback
        self.by_age = by_age
        self.position = 0
        self.head = 0
        self.lost = 0
        self.late = 0
        self.cycles = 0
        self._waiting: dict[bytes, SnapshotEvent] = {}
        self._followers: dict[bytes, list[bytes]] = {}  # leader -> its waiting followers
        self._roots: dict[bytes, int] = {}  # waiting events whose leader does not wait -> since
        self._by_age: list[tuple[int, int, bytes]] = []  # a heap of (since, seq, key) with each root, and some that were roots
        self._shortcut: dict[bytes, bytes] = {}  # waiting event -> some key above it, to find the top of a tree quickly
        self._given_up: dict[bytes, int] = {}  # leaders given up as lost -> when, the oldest first; 0: unknown
        self.gave: dict[bytes, int] = {}
        self.pruned: list[bytes] = []
        self.releasing: dict[bytes, int] = {}  # released events that others still wait for -> a number that grows
        self.breaking: dict[bytes, Cycle] = {}
        self._siblings: dict[bytes, list[tuple[int, str, int, bytes]]] = {}  # of those: a heap of what waits for it
        self._limit: int | None = None
        self._met: set[bytes] = set()  # events offered or released since the last offer began: a copy of one changes nothing

    def __len__(self) -> int:
        """How many events wait."""
        return len(self._waiting)

    def offer(
        self, events: Iterable[Offered], now: int, received: Mapping[int, int] = _NOW, limit: int | None = None, ahead: int = 0
    ) -> Released:
        """Add events in order of seq, and return the released ones. `received` has arrival times before now, by seq.

        The clock of `received` and `occurred` is `ahead` µs ahead of the scope's clock. A copy changes nothing: its seq was offered before,
        or its key is waiting, was waiting at the begin of this batch, or is in the batch already.
        """
        out, self._limit = Released(), limit
        waiting, followers, given_up = self._waiting, self._followers, self._given_up
        add_seq, add_mark, add_waited = out.seqs.append, out.marks.append, out.waited.append
        head = self.head
        self.gave, self.pruned = {}, []
        met = self._met = set()
        for seq, key, leader, leader_seq, occurred, id in events:
            if seq <= head or key in met or key in waiting:
                continue
            head = seq
            met.add(key)
            late = key in given_up and self._comes_late(key, now)
            if leader is not None and leader != key and (leader_seq < 0 or leader in waiting):
                if not self.by_age or leader in waiting or received.get(seq, occurred) - ahead + self.lookback > now:
                    since = min(now, received[seq] - ahead) if seq in received else now
                    self._wait(SnapshotEvent(seq, key, leader, occurred, id, since, late), now, out)
                    continue
                self._too_old(seq, key, leader, now, out)
                continue
            add_seq(seq)
            add_mark(LATE if late else None)
            add_waited(0)
            if key in followers:
                self._release_followers([key], now, out)
        self.head = head
        self.position += len(out)
        return out

    def expire(self, now: int, max_roots: int | None = None, limit: int | None = None) -> Released:
        """Give up the leaders that did not arrive within the lookback, and release the roots that wait for them, with their trees.

        With `max_roots`, only that number of roots is released, the longest waiting first.
        """
        out, self._limit = Released(), limit
        due: list[SnapshotEvent] = []
        self.gave, self.pruned = {}, []
        while len(due) != max_roots and (oldest := self._oldest()) is not None and oldest[0] + self.lookback <= now:
            heappop(self._by_age)
            due.append(self._waiting[oldest[2]])
            del self._roots[oldest[2]]
        if due:
            self._give_up(due, now)
            for root in sorted(due, key=sort_key):
                self._release(root, LOST, now, out)
                self._release_followers([root.key], now, out)
            self.lost += len(due)
            self.position += len(out)
        return out

    def release(self, now: int, limit: int) -> Released:
        """Continue the releases that a limit interrupted."""
        out, self._limit = Released(), limit
        self.gave, self.pruned = {}, []
        self._go_on(now, out)
        self.position += len(out)
        return out

    def remove(self, key: bytes, now: int, limit: int | None = None) -> Released:
        """Remove a waiting event that is handled elsewhere, and return its released followers."""
        out, self._limit = Released(), limit
        if (entry := self._waiting.get(key)) is not None:
            self._release(entry, None, now, Released())
            self._release_followers([key], now, out)
            self.position += len(out)
        return out

    def turn_back(self, now: int) -> None:
        """Set the scope's clock back: times after `now`, by a wrong clock, become `now`."""
        set_back(self._waiting, now)
        self._roots = {key: min(since, now) for key, since in self._roots.items()}
        self._by_age = [(since, self._waiting[key][0], key) for key, since in self._roots.items()]
        heapify(self._by_age)
        self._given_up = {key: min(at, now) for key, at in self._given_up.items()}

    def entry(self, key: bytes) -> SnapshotEvent | None:
        """Return a waiting event, or None."""
        return self._waiting.get(key)

    def is_given_up(self, key: bytes) -> bool:
        """Whether this leader was given up as lost, and has not arrived since."""
        return key in self._given_up

    def next_expiry(self) -> int | None:
        """Return when the next root expires, or None. Its leader may still arrive before."""
        oldest = self._oldest()
        return None if oldest is None else oldest[0] + self.lookback

    def waiting(self) -> Iterator[SnapshotEvent]:
        """Return the waiting events in order of arrival."""
        return iter(self._waiting.values())

    def snapshot(self) -> bytes:
        """Return the whole state as bytes for `restore`."""
        totals = (self.position, self.head, self.lost, self.late, self.cycles)
        return OrderingSnapshot(totals, list(self._waiting.values()), list(self._given_up)).pack()

    @classmethod
    def restore(cls, snapshot: bytes, lookback: int, *, by_age: bool = False) -> CausalOrder:
        """Return the ordering of a snapshot. The lookback may differ."""
        return cls.rebuilt(OrderingSnapshot.unpack(snapshot), lookback, by_age=by_age)

    @classmethod
    def rebuilt(
        cls,
        blob: OrderingSnapshot,
        lookback: int,
        *,
        by_age: bool = False,
        given_up: Mapping[bytes, int] | None = None,
        releasing: Mapping[bytes, int] = MappingProxyType({}),
        breaking: Mapping[bytes, tuple[int, Sequence[int]]] = MappingProxyType({}),
    ) -> CausalOrder:
        """Return the ordering with this state. `given_up` has the times of given-up leaders, `breaking` the numbers and seqs of cycles."""
        order = cls(lookback, by_age=by_age)
        order.position, order.head, order.lost, order.late, order.cycles = blob.totals
        order._given_up = dict.fromkeys(blob.given_up, 0) if given_up is None else dict(given_up)
        waiting = order._waiting = {entry.key: entry for entry in blob.waiting}
        order.breaking, members = rebuilt(blob.waiting, breaking)
        for entry in blob.waiting:
            if entry.key in members:  # members of cycles wait for no leader
                continue
            order._followers.setdefault(entry.leader, []).append(entry.key)
            if entry.leader not in waiting and entry.leader not in releasing:
                order._roots[entry.key] = entry.since
        order._by_age = [(since, waiting[key].seq, key) for key, since in order._roots.items()]
        heapify(order._by_age)
        order.releasing = dict(releasing)
        return order

    def _oldest(self) -> tuple[int, int, bytes] | None:
        """Return (since, seq, key) of the longest waiting root, or None."""
        heap = self._by_age
        while heap:
            since, seq, key = heap[0]
            if self._roots.get(key) == since and self._waiting[key].seq == seq:
                return heap[0]
            heappop(heap)
        return None

    def _comes_late(self, key: bytes, now: int) -> bool:
        """Remove an arrived leader from the given-up ones, and return whether it counts as late."""
        at = self._given_up.pop(key)
        self.gave.pop(key, None)
        late = not at or at + GIVEN_UP_MICROS > now
        self.late += late
        return late

    def _too_old(self, seq: int, key: bytes, leader: bytes, now: int, out: Released) -> None:
        """Release one event that is too old to wait for its missing leader."""
        self._record_given_up(leader, now)
        self._prune_given_up(now)
        self.lost += 1
        out.add(seq, LOST, 0)
        self._release_followers([key], now, out)

    def _wait(self, entry: SnapshotEvent, now: int, out: Released) -> None:
        """Add a waiting event, unless it closes a cycle."""
        key, leader = entry.key, entry.leader
        mine = self._followers.get(key)
        if mine is not None:
            for follower in mine:
                self._roots.pop(follower, None)
            if self._top(leader) == key:
                self._break_cycle(entry, now, out)
                return
        if leader not in self._waiting:
            self._roots[key] = entry.since
            heappush(self._by_age, (entry.since, entry.seq, key))
            self._drop_past_roots()
        self._waiting[key] = entry
        self._followers.setdefault(leader, []).append(key)

    def _drop_past_roots(self) -> None:
        if len(self._by_age) > 2 * len(self._roots) + 1_000:  # most entries are former roots
            self._by_age = [one for one in self._by_age if self._roots.get(one[2]) == one[0]]
            heapify(self._by_age)

    def _top(self, key: bytes) -> bytes:
        """Return the key that the tree of `key` waits for: the first key above it, or itself, that does not wait."""
        path: list[bytes] = []
        while (entry := self._waiting.get(key)) is not None:
            path.append(key)
            key = self._shortcut.get(key, entry.leader)
        for below in path:
            self._shortcut[below] = key
        return key

    def _break_cycle(self, closing: SnapshotEvent, now: int, out: Released) -> None:
        """Release the cycle that `closing` closes, in order of (occurred, id), then all its followers."""
        self._waiting[closing.key] = closing
        members = detached(closing, self._waiting, self._followers, self._shortcut)
        self.cycles += 1
        self.breaking[closing.key] = Cycle.of(self.cycles, members)
        self._release_member(closing.key, now, out)  # regardless of the limit, so that every walk upwards ends
        self._go_on(now, out)

    def _release_member(self, closing: bytes, now: int, out: Released) -> None:
        """Release the next member of a cycle. Followers of members are released after all members."""
        cycle = self.breaking[closing]
        entry = cycle.pop(self._waiting)
        if entry is not None:
            self._release(entry, CYCLE, now, out)
            self._begin_release(entry.key)
        if not cycle:
            del self.breaking[closing]

    def _release(self, entry: SnapshotEvent, mark: str | None, now: int, out: Released) -> None:
        """Release one waiting event."""
        key = entry.key
        del self._waiting[key]
        self._met.add(key)
        self._roots.pop(key, None)
        self._shortcut.pop(key, None)
        out.add(entry.seq, mark or (LATE if entry.late else None), now - entry.since)

    def _release_followers(self, released: list[bytes], now: int, out: Released) -> None:
        """Release all events below released ones: by generation, siblings in order of (occurred, id)."""
        if self._limit is not None:
            for key in released:
                self._begin_release(key)
            self._drop_past_roots()
            self._go_on(now, out)
            return
        for key in released:  # a worklist, which grows during the loop
            keys = self._followers.pop(key, None)
            if keys is None:
                continue
            entries = [entry for follower in keys if (entry := self._waiting.get(follower)) is not None]
            if len(entries) > 1:
                entries.sort(key=sort_key)
            for entry in entries:
                self._release(entry, None, now, out)
                released.append(entry.key)

    def _begin_release(self, key: bytes) -> None:
        """Make the followers of a released event wait only for `release`."""
        if key in self._followers and key not in self.releasing:
            self.releasing[key] = 1 + next(reversed(self.releasing.values()), 0)
            for follower in self._followers[key]:
                self._roots.pop(follower, None)

    def _go_on(self, now: int, out: Released) -> None:
        """Release cycles and followers of released events, in the order of their release, up to the limit."""
        limit = self._limit
        while self.breaking and (limit is None or len(out) < limit):
            self._release_member(next(iter(self.breaking)), now, out)
        while self.releasing and (limit is None or len(out) < limit):
            key = next(iter(self.releasing))
            siblings = self._siblings.get(key)
            if siblings is None:
                entries = [entry for follower in self._followers.pop(key, ()) if (entry := self._waiting.get(follower)) is not None]
                siblings = self._siblings[key] = [(*sort_key(entry), entry.key) for entry in entries]
                heapify(siblings)  # a heap, since sorting many siblings takes too long for one transaction
            while siblings and (limit is None or len(out) < limit):
                _, _, seq, follower = heappop(siblings)
                entry = self._waiting.get(follower)
                if entry is not None and entry.seq == seq:
                    self._release(entry, None, now, out)
                    self._begin_release(follower)
            if not siblings:
                del self._siblings[key], self.releasing[key]

    def _give_up(self, roots: list[SnapshotEvent], now: int) -> None:
        """Give up the leaders of `roots`, and remove these roots from their followers."""
        expired = {root.key for root in roots}
        for leader in {root.leader: None for root in roots}:
            self._record_given_up(leader, now)
            left = [key for key in self._followers[leader] if key not in expired]
            if left:
                self._followers[leader] = left
            else:
                del self._followers[leader]
        self._prune_given_up(now)

    def _record_given_up(self, leader: bytes, now: int) -> None:
        """Record the time at which a leader was given up, unless it is known already."""
        if leader not in self._given_up:
            self._given_up[leader] = self.gave[leader] = now

    def _prune_given_up(self, now: int) -> None:
        """Prune leaders that were given up long ago, and the oldest if there are too many."""
        given_up = self._given_up
        too_many = len(given_up) - GIVEN_UP_LIMIT
        over = min(len(given_up) - GIVEN_UP_LIMIT // 2, max(too_many, PRUNE_BATCH_SIZE)) if too_many > 0 else 0
        pruned: list[bytes] = []
        for key, at in given_up.items():
            if len(pruned) >= over and (len(pruned) >= PRUNE_BATCH_SIZE or not 0 < at <= now - GIVEN_UP_MICROS):
                break
            pruned.append(key)
        for key in pruned:
            del given_up[key]
            self.gave.pop(key, None)
        self.pruned += pruned
