"""The memory home of the ordering: for tests, and for consumers that begin anew when their process does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from threading import RLock
from typing import Concatenate, Final, ParamSpec, TypeVar

from typing_extensions import override

from headrace.core.handling import Caused, Claim, Counts, HandlingPolicy, Offering, Placed, State, Wait, placed
from headrace.core.ordering import CausalOrder
from headrace.ports.ordering import OrderingHome

P = ParamSpec("P")
T = TypeVar("T")
_OPEN: Final[tuple[State, ...]] = ("waiting", "blocked", "ready", "claimed", "dead", "skipped")


@dataclass(slots=True)
class _Entry:
    """One event that is not handled yet."""

    seq: int
    event: Caused
    since: int
    state: State = "waiting"
    position: int = 0
    mark: str | None = None
    due: int = 0
    attempts: int = 0
    token: str = ""
    error: str | None = None


def _alone(method: Callable[Concatenate[MemoryHome, P], T]) -> Callable[Concatenate[MemoryHome, P], T]:
    """Make a method atomic."""

    def call(self: MemoryHome, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.lock:
            return method(self, *args, **kwargs)

    call.__doc__ = method.__doc__
    return call


class MemoryHome(OrderingHome):
    """One scope in memory. `lookback` in µs; with `by_age`, events that are older than that when they come do not wait."""

    def __init__(self, lookback: int, *, policy: HandlingPolicy | None = None, by_age: bool = True) -> None:
        self.policy = policy or HandlingPolicy()
        self.lock = RLock()
        self._order = CausalOrder(lookback, by_age=by_age)
        self._clock = 0
        self._seqs = count(1)
        self._tokens = count(1)
        self._open: dict[bytes, _Entry] = {}
        self._by_seq: dict[int, _Entry] = {}
        self._handled: set[bytes] = set()
        self._followers: dict[bytes, dict[bytes, _Entry]] = {}
        self._due: list[tuple[int, int, bytes]] = []
        self._held = 0

    @override
    @_alone
    def offer(self, events: Sequence[Caused], now: int) -> list[State]:
        offering = Offering(self._order, self._known(events))
        clock = self._tick(now)
        for event in events:
            seq = next(self._seqs)
            if offering.add(seq, event):
                entry = self._open[event.key] = self._by_seq[seq] = _Entry(seq, event, clock)
                if event.leader_key is not None:
                    self._followers.setdefault(event.leader_key, {})[event.key] = entry
        self._place(offering.decide(clock))
        return [self._state(event.key) or "handled" for event in events]

    @override
    @_alone
    def expire(self, now: int) -> int:
        first, before = self._order.position + 1, self._order.lost
        self._place(placed(self._order.expire(self._tick(now)), first))
        return self._order.lost - before

    @override
    @_alone
    def claim(self, most: int, now: int, *, after: Sequence[bytes] | None = None, only: bytes | None = None) -> list[Claim]:
        clock, token = self._tick(now), f"{next(self._tokens)}"
        if only is not None:
            taken = [entry for entry in [self._open.get(only)] if entry is not None and self._free(entry, clock)]
        elif after is not None:
            ready = [entry for key in after for entry in self._following(key) if entry.state == "ready" and entry.due <= clock]
            taken = self._with_blocked(ready[:most], most)
        else:
            taken = self._with_blocked(self._pop_due(most, clock), most)
        for entry in taken:
            entry.token, entry.attempts = token, entry.attempts + 1
            if entry.state != "blocked":  # what only waits for one in this claim goes with it, and comes back with it
                self._lease(entry, clock)
        taken.sort(key=lambda entry: entry.position)
        return [_claim(entry) for entry in taken]

    @override
    @_alone
    def settle(self, claims: Sequence[Claim], now: int) -> int:
        clock = self._tick(now)
        mine = [entry for entry in map(self._held_by, claims) if entry is not None]
        for entry in mine:
            self._finish(entry)
        self._unblock(mine, clock)
        return len(mine)

    @override
    @_alone
    def fail(self, claim: Claim, now: int, error: str, retry_at: int | None) -> bool:
        entry = self._held_by(claim)
        if entry is None:
            return False
        entry.error, entry.token = error, ""
        if retry_at is not None:
            self._make_ready(entry, retry_at)
            return True
        entry.state = "dead" if self.policy.dead == "hold" else "skipped"
        if entry.state == "skipped":
            self._unblock([entry], self._tick(now))
        return True

    @override
    @_alone
    def give_back(self, claims: Sequence[Claim], now: int) -> None:
        clock = self._tick(now)
        for entry in map(self._held_by, claims):
            if entry is not None:
                entry.attempts, entry.token = entry.attempts - 1, ""
                if entry.state == "claimed":
                    self._make_ready(entry, clock)

    @override
    @_alone
    def redrive(self, keys: Sequence[bytes] | None, now: int) -> int:
        clock = self._tick(now)
        chosen = self._open.values() if keys is None else [self._open[key] for key in keys if key in self._open]
        dead = [entry for entry in chosen if entry.state in {"dead", "skipped"}]
        for entry in dead:
            entry.attempts = 0
            self._make_ready(entry, clock)
        return len(dead)

    @override
    @_alone
    def forget(self, key: bytes, now: int) -> bool:
        clock = self._tick(now)
        entry = self._open.get(key)
        if entry is None or (entry.state == "claimed" and entry.due > clock):
            return False
        if entry.state == "waiting":
            first = self._order.position + 1
            self._place(placed(self._order.withdraw(key, clock), first))
        self._finish(entry)
        self._unblock([entry], clock)
        return True

    @override
    @_alone
    def states(self, keys: Sequence[bytes]) -> list[State | None]:
        return [self._state(key) for key in keys]

    @override
    @_alone
    def followers(self, key: bytes) -> list[Caused]:
        waits = [entry for entry in self._following(key) if entry.state in {"waiting", "blocked"}]
        return [entry.event for entry in sorted(waits, key=lambda entry: (entry.event.occurred, entry.event.id))]

    @override
    @_alone
    def waits(self, limit: int) -> list[Wait]:
        found = sorted((entry for entry in self._open.values() if entry.state in {"waiting", "blocked"}), key=lambda entry: entry.seq)
        return [Wait(entry.event, entry.state, entry.since) for entry in found[:limit]]

    @override
    @_alone
    def counts(self) -> Counts:
        states = dict.fromkeys(_OPEN, 0)
        for entry in self._open.values():
            states[entry.state] += 1
        return Counts(
            waiting=states["waiting"],
            blocked=states["blocked"],
            ready=states["ready"],
            claimed=states["claimed"],
            dead=states["dead"] + states["skipped"],
            released=self._order.position,
            handled=len(self._handled),
            lost=self._order.lost,
            late=self._order.late,
            cycles=self._order.cycles,
            held=self._held,
        )

    @override
    @_alone
    def next_due(self) -> int | None:
        self._drop_stale()
        moments = [moment for moment in (self._order.next_expiry(), self._due[0][0] if self._due else None) if moment is not None]
        return min(moments, default=None)

    @override
    def close(self) -> None:
        """Keep everything: nothing is held open."""

    def _tick(self, now: int) -> int:
        self._clock = max(self._clock, now)
        return self._clock

    def _known(self, events: Iterable[Caused]) -> dict[bytes, State]:
        keys = {key for event in events for key in (event.key, event.leader_key) if key is not None}
        return {key: state for key in keys if (state := self._state(key)) is not None}

    def _state(self, key: bytes) -> State | None:
        if (entry := self._open.get(key)) is not None:
            return entry.state
        return "handled" if key in self._handled else None

    def _place(self, released: Iterable[Placed]) -> None:
        for place in released:
            entry = self._by_seq[place.seq]
            entry.position, entry.mark = place.position, place.mark
            self._held += place.waited
            if place.blocked:
                entry.state = "blocked"
            else:
                self._make_ready(entry, self._clock)

    def _make_ready(self, entry: _Entry, due: int) -> None:
        entry.state, entry.due = "ready", due
        heappush(self._due, (due, entry.position, entry.event.key))

    def _lease(self, entry: _Entry, clock: int) -> None:
        entry.state, entry.due = "claimed", clock + self.policy.lease
        heappush(self._due, (entry.due, entry.position, entry.event.key))

    def _free(self, entry: _Entry, clock: int) -> bool:
        return entry.state == "ready" or (entry.state == "claimed" and entry.due <= clock)

    def _drop_stale(self) -> None:
        while self._due:
            due, _, key = self._due[0]
            entry = self._open.get(key)
            if entry is not None and entry.due == due and entry.state in {"ready", "claimed"}:
                return
            heappop(self._due)

    def _pop_due(self, most: int, clock: int) -> list[_Entry]:
        found: dict[bytes, _Entry] = {}
        while len(found) < most:
            self._drop_stale()
            if not self._due or self._due[0][0] > clock:
                break
            key = heappop(self._due)[2]
            found[key] = self._open[key]
        return list(found.values())

    def _following(self, key: bytes) -> list[_Entry]:
        return sorted(self._followers.get(key, {}).values(), key=lambda entry: entry.position)

    def _with_blocked(self, ready: list[_Entry], most: int) -> list[_Entry]:
        taken = ready[:most]
        for entry in taken:  # a worklist: it grows as we go
            if len(taken) >= most:
                break
            taken += [below for below in self._following(entry.event.key) if below.state == "blocked"][: most - len(taken)]
        return taken

    def _held_by(self, claim: Claim) -> _Entry | None:
        entry = self._open.get(claim.event.key)
        return entry if entry is not None and entry.state in {"claimed", "blocked"} and entry.token == claim.token else None

    def _finish(self, entry: _Entry) -> None:
        del self._open[entry.event.key], self._by_seq[entry.seq]
        self._handled.add(entry.event.key)
        if entry.event.leader_key is not None:
            siblings = self._followers[entry.event.leader_key]
            del siblings[entry.event.key]
            if not siblings:
                del self._followers[entry.event.leader_key]

    def _unblock(self, done: Iterable[_Entry], clock: int) -> None:
        """Make ready what these blocked; what the same claim took along stays in its hands."""
        for leader in done:
            for entry in self._following(leader.event.key):
                if entry.state == "blocked" and entry.token and entry.token == leader.token:
                    self._lease(entry, clock)
                elif entry.state == "blocked":
                    self._make_ready(entry, clock)


def _claim(entry: _Entry) -> Claim:
    return Claim(entry.seq, entry.event, entry.position, entry.mark, entry.attempts, entry.token)
