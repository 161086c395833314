"""Causal order: decides which events of a scope are ready, which wait for their leader, and which have waited too long.

Its law, which the property tests hold it to:

- An event waits if and only if its leader waits, or has not been offered yet. Everything else is released at once.
- What waits forms trees. A tree is released as a whole, from its root downwards, or not at all; so an event that stopped
  being a root never is one again, and only roots grow old.
- With a `limit`, one call releases about that many waiting events; the rest of the tree, or of the cycle, waits for
  `release`, and no longer for its leader: it neither grows old nor is lost.
- A cycle can only be closed by an event that others already wait for. It is found then and there.

It keeps no list of the events it has released: the log drops known ids, and stamps each event with the `seq` of a leader that
came before it. What is kept is what waits, and the keys of leaders given up as lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import Final, TypeAlias

from headrace.core.ordering.cycles import Cycle, detached, place, rebuilt
from headrace.core.ordering.snapshot import OrderingSnapshot, SnapshotEvent, set_back

Offered: TypeAlias = tuple[int, bytes, bytes | None, int, int, str]
"""One event: (seq, key, leader's key or None, leader's seq or -1, occurred in µs, id)."""

LOST: Final = "lost"
LATE: Final = "late"
CYCLE: Final = "cycle"

GIVEN_UP_LIMIT: Final = 100_000
"""So many lost leaders are remembered; beyond it the oldest are forgotten, and such a leader comes without its `late` mark."""

FORGOTTEN_AT_ONCE: Final = 1_000
"""About so many lost leaders one call forgets; the next calls forget the others."""

GIVEN_UP_MICROS: Final = 30 * 86_400_000_000
"""So long, in µs, a lost leader is remembered; one that comes later has no `late` mark."""

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

    `position` is how many events were released so far, `head` the last seq offered; `lost`, `late` and `cycles` are counts. With `by_age`,
    an event that is older than the lookback when it comes does not wait for a leader that is not here: `occurred` says how old it is.
    `gave` has the leaders that the last offer or expiry gave up, and when; `forgot` those given up earlier that it forgot.
    Of what a `limit` left to `release`, `releasing` has released events that others follow, and `breaking` cycles, by what closed them.
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
        self._followers: dict[bytes, list[bytes]] = {}  # leader -> those that wait for it
        self._roots: dict[bytes, int] = {}  # waiting events whose leader does not wait -> since
        self._by_age: list[tuple[int, int, bytes]] = []  # a heap of (since, seq, key) with each root, and some that were roots
        self._shortcut: dict[bytes, bytes] = {}  # waiting event -> some key above it, to find the top of a tree quickly
        self._given_up: dict[bytes, int] = {}  # leaders given up as lost -> when, the oldest first; 0: unknown
        self.gave: dict[bytes, int] = {}
        self.forgot: list[bytes] = []
        self.releasing: dict[bytes, int] = {}  # released events that others still wait for -> a number that grows
        self.breaking: dict[bytes, Cycle] = {}
        self._siblings: dict[bytes, list[tuple[int, str, int, bytes]]] = {}  # of those: a heap of what waits for it
        self._limit: int | None = None
        self._met: set[bytes] = set()  # what was offered or released since the last offer began: a copy of it changes nothing

    def __len__(self) -> int:
        """How many events wait."""
        return len(self._waiting)

    def offer(
        self, events: Iterable[Offered], now: int, received: Mapping[int, int] = _NOW, limit: int | None = None, ahead: int = 0
    ) -> Released:
        """Take events in order of seq, and return what is ready. `received` has the time of arrival, by seq, of those that came before now.

        The clock that gave `received` and `occurred` is `ahead` µs of the scope's clock.
        A copy changes nothing: its seq was taken before, or its key waits, waited when this batch came, or is in the batch already.
        """
        out, self._limit = Released(), limit
        waiting, followers, given_up = self._waiting, self._followers, self._given_up
        add_seq, add_mark, add_waited = out.seqs.append, out.marks.append, out.waited.append
        head = self.head
        self.gave, self.forgot = {}, []
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

    def expire(self, now: int, most: int | None = None, limit: int | None = None) -> Released:
        """Give up on the leaders that did not come within the lookback: release the roots that wait for them, and their trees.

        With `most`, only so many roots are released, those that wait longest.
        """
        out, self._limit = Released(), limit
        due: list[SnapshotEvent] = []
        self.gave, self.forgot = {}, []
        while len(due) != most and (oldest := self._oldest()) is not None and oldest[0] + self.lookback <= now:
            heappop(self._by_age)
            due.append(self._waiting[oldest[2]])
            del self._roots[oldest[2]]
        if due:
            self._give_up(due, now)
            for root in sorted(due, key=place):
                self._release(root, LOST, now, out)
                self._release_followers([root.key], now, out)
            self.lost += len(due)
            self.position += len(out)
        return out

    def release(self, now: int, limit: int) -> Released:
        """Go on where a limit ended the release of a tree."""
        out, self._limit = Released(), limit
        self.gave, self.forgot = {}, []
        self._go_on(now, out)
        self.position += len(out)
        return out

    def withdraw(self, key: bytes, now: int, limit: int | None = None) -> Released:
        """Count a waiting event as handled elsewhere; return the followers that are ready now."""
        out, self._limit = Released(), limit
        if (entry := self._waiting.get(key)) is not None:
            self._release(entry, None, now, Released())
            self._release_followers([key], now, out)
            self.position += len(out)
        return out

    def turn_back(self, now: int) -> None:
        """Set the scope's clock back: what happened after `now`, by a clock that was wrong, happened now."""
        set_back(self._waiting, now)
        self._roots = {key: min(since, now) for key, since in self._roots.items()}
        self._by_age = [(since, self._waiting[key][0], key) for key, since in self._roots.items()]
        heapify(self._by_age)
        self._given_up = {key: min(at, now) for key, at in self._given_up.items()}

    def entry(self, key: bytes) -> SnapshotEvent | None:
        """Return an event that waits."""
        return self._waiting.get(key)

    def is_given_up(self, key: bytes) -> bool:
        """Whether this leader was given up as lost, and did not come since."""
        return key in self._given_up

    def next_expiry(self) -> int | None:
        """Return when `expire` has something to release, unless its leader comes before."""
        oldest = self._oldest()
        return None if oldest is None else oldest[0] + self.lookback

    def waiting(self) -> Iterator[SnapshotEvent]:
        """Give what waits, in order of arrival."""
        return iter(self._waiting.values())

    def snapshot(self) -> bytes:
        """Return the whole state; `restore` makes it again."""
        totals = (self.position, self.head, self.lost, self.late, self.cycles)
        return OrderingSnapshot(totals, list(self._waiting.values()), list(self._given_up)).pack()

    @classmethod
    def restore(cls, snapshot: bytes, lookback: int, *, by_age: bool = False) -> CausalOrder:
        """Return the ordering that `snapshot` was taken of; the lookback may be another."""
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
        """Return the ordering with this state; `given_up` says when leaders were given up; `breaking` has numbers and seqs of cycles."""
        order = cls(lookback, by_age=by_age)
        order.position, order.head, order.lost, order.late, order.cycles = blob.totals
        order._given_up = dict.fromkeys(blob.given_up, 0) if given_up is None else dict(given_up)
        waiting = order._waiting = {entry.key: entry for entry in blob.waiting}
        order.breaking, members = rebuilt(blob.waiting, breaking)
        for entry in blob.waiting:
            if entry.key in members:  # it waits for no leader any more
                continue
            order._followers.setdefault(entry.leader, []).append(entry.key)
            if entry.leader not in waiting and entry.leader not in releasing:
                order._roots[entry.key] = entry.since
        order._by_age = [(since, waiting[key].seq, key) for key, since in order._roots.items()]
        heapify(order._by_age)
        order.releasing = dict(releasing)
        return order

    def _oldest(self) -> tuple[int, int, bytes] | None:
        """Return (since, seq, key) of the root that waits longest."""
        heap = self._by_age
        while heap:
            since, seq, key = heap[0]
            if self._roots.get(key) == since and self._waiting[key].seq == seq:
                return heap[0]
            heappop(heap)
        return None

    def _comes_late(self, key: bytes, now: int) -> bool:
        """Take a leader that was given up off that list; whether that was so short ago that it counts as late."""
        at = self._given_up.pop(key)
        self.gave.pop(key, None)
        late = not at or at + GIVEN_UP_MICROS > now
        self.late += late
        return late

    def _too_old(self, seq: int, key: bytes, leader: bytes, now: int, out: Released) -> None:
        """Release one event that came too late to wait for a leader that is not here."""
        self._remember(leader, now)
        self._forget_oldest(now)
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
        if len(self._by_age) > 2 * len(self._roots) + 1_000:  # most of it is no root any more
            self._by_age = [one for one in self._by_age if self._roots.get(one[2]) == one[0]]
            heapify(self._by_age)

    def _top(self, key: bytes) -> bytes:
        """Return the key that the tree of `key` waits for: the first above it that does not wait; `key` itself if it does not."""
        path: list[bytes] = []
        while (entry := self._waiting.get(key)) is not None:
            path.append(key)
            key = self._shortcut.get(key, entry.leader)
        for below in path:
            self._shortcut[below] = key
        return key

    def _break_cycle(self, closing: SnapshotEvent, now: int, out: Released) -> None:
        """Release the cycle that `closing` closes, in order of (occurred, id), then all that hangs on it."""
        self._waiting[closing.key] = closing
        members = detached(closing, self._waiting, self._followers, self._shortcut)
        self.cycles += 1
        self.breaking[closing.key] = Cycle.of(self.cycles, members)
        self._release_member(closing.key, now, out)  # whatever the limit, so that no walk upwards is endless
        self._go_on(now, out)

    def _release_member(self, closing: bytes, now: int, out: Released) -> None:
        """Release the next member of a cycle; what hangs on it comes after all members."""
        cycle = self.breaking[closing]
        entry = cycle.pop(self._waiting)
        if entry is not None:
            self._release(entry, CYCLE, now, out)
            self._begin_release(entry.key)
        if not cycle:
            del self.breaking[closing]

    def _release(self, entry: SnapshotEvent, mark: str | None, now: int, out: Released) -> None:
        """Release one event that waits."""
        key = entry.key
        del self._waiting[key]
        self._met.add(key)
        self._roots.pop(key, None)
        self._shortcut.pop(key, None)
        out.add(entry.seq, mark or (LATE if entry.late else None), now - entry.since)

    def _release_followers(self, released: list[bytes], now: int, out: Released) -> None:
        """Release everything below what was just released: generation by generation, siblings in order of (occurred, id)."""
        if self._limit is not None:
            for key in released:
                self._begin_release(key)
            self._drop_past_roots()
            self._go_on(now, out)
            return
        for key in released:  # a worklist: it grows as we go
            keys = self._followers.pop(key, None)
            if keys is None:
                continue
            entries = [entry for follower in keys if (entry := self._waiting.get(follower)) is not None]
            if len(entries) > 1:
                entries.sort(key=place)
            for entry in entries:
                self._release(entry, None, now, out)
                released.append(entry.key)

    def _begin_release(self, key: bytes) -> None:
        """Make the followers of a released event wait for `release` alone."""
        if key in self._followers and key not in self.releasing:
            self.releasing[key] = 1 + next(reversed(self.releasing.values()), 0)
            for follower in self._followers[key]:
                self._roots.pop(follower, None)

    def _go_on(self, now: int, out: Released) -> None:
        """Release what waits for released events, the first of these first, up to the limit."""
        limit = self._limit
        while self.breaking and (limit is None or len(out) < limit):
            self._release_member(next(iter(self.breaking)), now, out)
        while self.releasing and (limit is None or len(out) < limit):
            key = next(iter(self.releasing))
            siblings = self._siblings.get(key)
            if siblings is None:
                entries = [entry for follower in self._followers.pop(key, ()) if (entry := self._waiting.get(follower)) is not None]
                siblings = self._siblings[key] = [(*place(entry), entry.key) for entry in entries]
                heapify(siblings)  # many siblings are not sorted at once: that takes longer than a transaction should
            while siblings and (limit is None or len(out) < limit):
                _, _, seq, follower = heappop(siblings)
                entry = self._waiting.get(follower)
                if entry is not None and entry.seq == seq:
                    self._release(entry, None, now, out)
                    self._begin_release(follower)
            if not siblings:
                del self._siblings[key], self.releasing[key]

    def _give_up(self, roots: list[SnapshotEvent], now: int) -> None:
        """Remember the leaders of `roots` as lost, and that these roots no longer wait for them."""
        gone = {root.key for root in roots}
        for leader in {root.leader: None for root in roots}:
            self._remember(leader, now)
            left = [key for key in self._followers[leader] if key not in gone]
            if left:
                self._followers[leader] = left
            else:
                del self._followers[leader]
        self._forget_oldest(now)

    def _remember(self, leader: bytes, now: int) -> None:
        """Remember that a leader was given up; the first time counts."""
        if leader not in self._given_up:
            self._given_up[leader] = self.gave[leader] = now

    def _forget_oldest(self, now: int) -> None:
        """Forget leaders that were given up long ago, and the oldest when there are too many."""
        given_up = self._given_up
        too_many = len(given_up) - GIVEN_UP_LIMIT
        over = min(len(given_up) - GIVEN_UP_LIMIT // 2, max(too_many, FORGOTTEN_AT_ONCE)) if too_many > 0 else 0
        gone: list[bytes] = []
        for key, at in given_up.items():
            if len(gone) >= over and (len(gone) >= FORGOTTEN_AT_ONCE or not 0 < at <= now - GIVEN_UP_MICROS):
                break
            gone.append(key)
        for key in gone:
            del given_up[key]
            self.gave.pop(key, None)
        self.forgot += gone
