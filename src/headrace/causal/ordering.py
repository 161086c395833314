"""`CausalOrdering`: leaders before followers for any asyncio program, in memory or in a database of its own.

Invariant: a scope handles an event once, after its leader. The process that handles a leader continues with its
followers, one after the other and without recursion, however deep the chain. Each event is settled by itself, and only
after it was handled.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from time import monotonic_ns, time_ns
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import structlog

from headrace.causal.event import CausalEvent, causal_event, micros, to_ordered
from headrace.causal.memory_store import MemoryOrderingStore
from headrace.causal.stores import open_store
from headrace.core.ordering.delivery import Claim, DeliveryPolicy, OrderedEvent, ScopeCounters, State, WaitingEvent, waits_for
from headrace.errors import EventAlreadySeen, EventArrivedEarly
from headrace.ports.ordering_store import EXPIRED_EVENTS, Followers, OrderingStore, QueuedOrderingStore

log = structlog.get_logger(__name__)

T = TypeVar("T")
LOOKBACK: Final = timedelta(minutes=15)
RETENTION: Final = timedelta(days=7)
"""How long handled events are remembered."""
MAX_RETURNED: Final = 500
"""Lost followers in one result."""
OFFERED_EVENTS: Final = 1_000
"""Events in one transaction, during which other processes wait for the writers' lock."""
CLAIMED_EVENTS: Final = 20
"""Events of one claim. Other processes can handle the rest meanwhile."""
MAX_CLAIMED: Final = 200

Handler = Callable[[CausalEvent], Awaitable[object]]

# Events that the running task is handling, so that a handler that uses the ordering itself is not blocked.
_in_hand: ContextVar[frozenset[tuple[str, bytes]]] = ContextVar("headrace_in_hand", default=frozenset())


class CausalOrdering:
    """The causal order of one scope, for any number of tasks and, with a database, of processes.

    `store` is an ordering store, or the URL of a database of its own (its tables are created on first use); without it, memory. With
    `by_age`, an event that is older than `lookback` on arrival does not wait. A handled event is dropped after `retention`, but not
    before `lookback`. `clock` returns µs since the epoch; without it, the clock of the database or of this machine counts, and a steady
    clock if that is set. Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        scope: str,
        store: OrderingStore | str | None = None,
        *,
        lookback: timedelta = LOOKBACK,
        by_age: bool = True,
        retention: timedelta = RETENTION,
        policy: DeliveryPolicy | None = None,
        clock: Callable[[], int] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.scope = scope
        ticks = _steady_clock if clock is None else None
        self._store = open_store(scope, store, micros(lookback), policy=policy, by_age=by_age, retention=micros(retention), ticks=ticks)
        self._queue = self._store if isinstance(self._store, QueuedOrderingStore) else None
        self._clock = clock or (_wall_clock if self._queue is None else self._queue.clock)
        self._random = rng or random.Random()  # noqa: S311  it only spreads retries
        self._is_memory = isinstance(self._store, MemoryOrderingStore)
        self._threads = ThreadPoolExecutor(4, "headrace-ordering")  # for a store without a thread of its own

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store."""
        await asyncio.to_thread(self._store.close)
        self._threads.shutdown()

    def preceding_event_confirmed(self, handler: Handler, event: CausalEvent) -> Confirmed:
        """Handle `event` in the body if its leader was handled; then call `handler` with each event that waited for it, in order.

        An error of the body is raised, and the event may arrive again. An error of `handler` is stored with its event, which `handle_ready`
        retries; it holds back only the followers of that event.

        Raises:
            EventArrivedEarly: Its leader was not handled yet. It waits, durably in a database, and is handled later.
            EventAlreadySeen: It was handled, was given up, or is being handled now.
        """
        return Confirmed(self, handler, event)

    async def event_has_been_seen(self, event: CausalEvent | str, *, source: str = "") -> bool:
        """Return whether the event was handled in this scope."""
        return await self._state(event, source) == "handled"

    async def record_event_as_seen(self, event: CausalEvent) -> None:
        """Count an event as handled that was handled elsewhere, but not one that is being handled now.

        Its followers are then ready: `handle_ready` and `get_lost_followers` find them.
        """
        ordered = to_ordered(event)
        result = await self._claim_with(self._store.enter, ordered, self._clock())
        if isinstance(result, Claim):
            await self._claim_with(self._store.finish, result, self._clock(), 0)
        elif result not in {"handled", "claimed"}:
            await self._call(self._store.mark_handled, ordered.key, self._clock())

    async def record_follower(self, event: CausalEvent) -> None:
        """Add an event: it is ready, or waits for its leader. A repeated event changes nothing."""
        await self.offer([event])

    async def forget_follower(self, event: CausalEvent) -> None:
        """Count an event as handled that has arrived and is not being handled now.

        Its followers are then ready. An event that has not arrived is unchanged.
        """
        await self._call(self._store.mark_handled, to_ordered(event).key, self._clock())

    async def get_followers(self, leader: CausalEvent) -> list[CausalEvent]:
        """Return the followers of `leader` that are not being handled, in order of (occurred, id)."""
        return [causal_event(one) for one in await self._call(self._store.followers, to_ordered(leader).key)]

    async def get_lost_followers(self) -> list[CausalEvent]:
        """Give up on overdue leaders. Return the events to handle: their followers, and events to retry.

        Handle each with `preceding_event_confirmed`, which raises `EventAlreadySeen` if another process handles it
        first, or call `handle_ready` instead. An event is returned each time until it is handled.
        """
        await self.expire()
        while len(events := await self._call(self._store.ready, MAX_RETURNED, self._clock())) < MAX_RETURNED:
            if not await self._call(self._store.release_some, self._clock()):
                break
        return [causal_event(one, mark) for one, mark in events]

    async def offer(self, events: Iterable[CausalEvent]) -> list[State]:
        """Add many events; return the state of each. Each OFFERED_EVENTS are a transaction of their own."""
        rest, states = [to_ordered(event) for event in events], list[State]()
        for start in range(0, len(rest), OFFERED_EVENTS):
            states += await self._call(self._store.offer, rest[start : start + OFFERED_EVENTS], self._clock())
        if len(rest) > OFFERED_EVENTS:  # some became ready through later ones
            for start in range(0, len(rest), OFFERED_EVENTS):
                keys = [event.key for event in rest[start : start + OFFERED_EVENTS]]
                states[start : start + OFFERED_EVENTS] = [state or "handled" for state in await self._call(self._store.states, keys)]
        return states

    async def expire(self) -> int:
        """Give up on leaders that did not arrive within the lookback; return the number of events that this released."""
        lost = some = await self._call(self._store.expire_some, self._clock())
        while some >= EXPIRED_EVENTS:
            some = await self._call(self._store.expire_some, self._clock())
            lost += some
        return lost

    async def claim(self, limit: int) -> list[Claim]:
        """Claim up to `limit` events, to be handled one after the other in this order; `claimed_event` returns the event.

        A claim is valid for `DeliveryPolicy.lease`: `renew` it before its end, and `confirm`, `give_back` or `fail` it.
        """
        while not (claims := await self._call(self._store.claim, limit, self._clock())):
            if not await self._call(self._store.release_some, self._clock()):
                break
        return claims

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        """Renew claims; return the valid ones. Do not handle the others."""
        return await self._call(self._store.renew, claims, self._clock())

    async def confirm(self, claim: Claim) -> bool:
        """Count a claim as handled; return False if it was no longer valid."""
        return bool(await self.settle([claim]))

    async def settle(self, claims: Sequence[Claim]) -> int:
        """Count claims as handled; return how many were still valid."""
        return await self._call(self._store.settle, claims, self._clock())

    async def give_back(self, claim: Claim) -> None:
        """Release a claim without an attempt."""
        await self._call(self._store.give_back, [claim], self._clock())

    async def fail(self, claim: Claim, error: BaseException) -> bool:
        """Record a failed claim: the policy retries it or marks it dead. Return False if it was no longer valid."""
        now = self._clock()
        retry_at = self._store.policy.retry_at(claim.attempts, now, self._random.random())
        return await self._call(self._store.fail, claim, now, f"{type(error).__name__}: {error}", retry_at)

    async def handle_ready(self, handler: Handler, limit: int = CLAIMED_EVENTS) -> int:
        """Handle events that are ready, lost or due for a retry, and their followers; return the number of handled events.

        Claims up to `limit` events in one call, and settles them one by one.
        """
        await self.expire()
        handled = 0
        while True:
            claims = await self._claim_with(self._store.take_ready, limit, self._clock())
            handled += await self._handle_all(handler, claims)
            if not claims and not await self._call(self._store.release_some, self._clock()):
                return handled

    async def waits(self, limit: int = 100) -> list[WaitingEvent]:
        """Return the waiting events with their leaders, the longest wait first."""
        return await self._call(self._store.waits, limit)

    async def counts(self) -> ScopeCounters:
        """Return the counters of the scope."""
        return await self._call(self._store.counts)

    async def redrive(self, events: Iterable[CausalEvent] | None = None) -> int:
        """Retry dead events (without `events`: all of them); return their number."""
        keys = None if events is None else [to_ordered(event).key for event in events]
        if self._is_memory:
            return self._store.redrive(keys, self._clock())
        # not one call of the store's thread, which would be a single transaction of any size
        return await asyncio.shield(asyncio.wrap_future(self._threads.submit(self._store.redrive, keys, self._clock())))

    async def _enter(self, event: CausalEvent, ordered: OrderedEvent) -> Claim:
        result = await self._claim_with(self._store.enter, ordered, self._clock())
        if isinstance(result, Claim):
            return result
        if result in {"waiting", "blocked"}:
            raise EventArrivedEarly(f"Event '{event.id}' came before '{event.follows}', which it follows, was handled; it waits.")
        raise EventAlreadySeen(f"Event '{event.id}' is {'being handled' if result in {'claimed', 'ready'} else result} already.")

    async def _exit(self, handler: Handler, claim: Claim) -> None:
        followers = await self._finish(claim, CLAIMED_EVENTS)
        if followers is not None and (work := _with_rest(claim.event.key, followers)):
            await self._handle_all(handler, work)

    async def _handle_all(self, handler: Handler, claims: Iterable[Claim | bytes]) -> int:
        """Handle claims and then their followers, first in, first out. A key stands for the remaining followers of that event."""
        work: deque[Claim | bytes] = deque(claims)
        handled, held_back = 0, set[bytes]()
        try:
            while work:
                one = work[0]
                if isinstance(one, bytes):
                    more = await self._claim_with(self._store.take_followers, one, CLAIMED_EVENTS, self._clock())
                    work.popleft()
                    work.extendleft(reversed(_with_rest(one, more)))
                    continue
                work.popleft()
                if held_back and waits_for(one, held_back):
                    held_back.add(one.event.key)
                    await self.give_back(one)
                    continue
                capacity = CLAIMED_EVENTS if len(work) < MAX_CLAIMED else 0
                followers = await self._handle(handler, one, capacity)
                if followers is None:
                    held_back.add(one.event.key)
                else:
                    handled += 1
                    work.extend(_with_rest(one.event.key, followers))
        finally:
            rest = [one for one in work if isinstance(one, Claim)]
            if rest:
                await self._abandon(rest)
        return handled

    async def _handle(self, handler: Handler, claim: Claim, capacity: int) -> Followers | None:
        """Handle one claim. Return the result of `finish`, or None if it failed; the error is stored with the event."""
        before = _in_hand.get()
        _in_hand.set(before | {(self.scope, claim.event.key)})
        try:
            await handler(claimed_event(claim))
        except BaseException as error:
            await self._record_failure(claim, error)
            if not isinstance(error, Exception):
                raise
            return None
        finally:
            _in_hand.set(before)
        return await self._finish(claim, capacity)

    async def _finish(self, claim: Claim, capacity: int) -> Followers | None:
        try:
            return await self._claim_with(self._store.finish, claim, self._clock(), capacity)
        except Exception:
            await self._drop([claim])
            raise

    async def _record_failure(self, claim: Claim, error: BaseException) -> None:
        if isinstance(error, Exception):
            try:
                await self.fail(claim, error)
            except Exception:
                await self._drop([claim])
                raise
        else:
            await self._abandon([claim])  # a cancellation does not count as a failure

    async def _abandon(self, claims: Sequence[Claim]) -> None:
        """Release claims because of an error that the caller raises. That error is raised even if the database accepts no writes."""
        try:
            try:
                await self._call(self._store.give_back, claims, self._clock())
            except Exception:
                await self._drop(claims)
                raise
        except Exception as error:
            log.warning("events not given back", scope=self.scope, events=len(claims), error=str(error))

    async def _drop(self, claims: Sequence[Claim]) -> None:
        """Release claims as if this process had ended; otherwise they stay claimed for its lifetime."""
        for claim in claims:
            await self._call(self._store.drop, claim)

    async def _state(self, event: CausalEvent | str, source: str) -> State | None:
        key = (OrderedEvent.of(source, event, None, 0) if isinstance(event, str) else to_ordered(event)).key
        return (await self._call(self._store.states, [key]))[0]

    async def _call(self, method: Callable[..., T], *arguments: Any) -> T:
        return method(*arguments) if self._is_memory else await asyncio.shield(asyncio.wrap_future(self._submit(method, *arguments)))

    async def _claim_with(self, method: Callable[..., T], *arguments: Any) -> T:
        """Call a method that claims events. If the task is cancelled meanwhile, release the claims."""
        if self._is_memory:
            return method(*arguments)
        future = self._submit(method, *arguments)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            future.add_done_callback(self._give_back_unwanted)
            raise

    def _submit(self, method: Callable[..., T], *arguments: Any) -> Future[T]:
        if self._queue is not None:
            return self._queue.submit(method, *arguments)
        return self._threads.submit(partial(method, *arguments))

    def _give_back_unwanted(self, future: Future[Any]) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        result = future.result()
        claims = [result] if isinstance(result, Claim) else result.claims if isinstance(result, Followers) else result
        if isinstance(claims, list) and claims:
            self._submit(self._store.give_back, claims, self._clock())


class Confirmed:
    """Context manager that handles one event; see `CausalOrdering.preceding_event_confirmed`."""

    __slots__ = ("_before", "_claim", "_event", "_handler", "_ordering")

    def __init__(self, ordering: CausalOrdering, handler: Handler, event: CausalEvent) -> None:
        self._ordering = ordering
        self._handler = handler
        self._event = event
        self._claim: Claim | None = None
        self._before: frozenset[tuple[str, bytes]] = frozenset()

    async def __aenter__(self) -> None:
        ordering, ordered = self._ordering, to_ordered(self._event)
        self._before = before = _in_hand.get()
        mine = (ordering.scope, ordered.key)
        if mine not in before:
            self._claim = await ordering._enter(self._event, ordered)  # noqa: SLF001  a part of it
            _in_hand.set(before | {mine})

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        claim = self._claim
        if claim is None:
            return
        self._claim = None
        _in_hand.set(self._before)
        if error is None:
            await self._ordering._exit(self._handler, claim)  # noqa: SLF001  a part of it
        else:
            await self._ordering._record_failure(claim, error)  # noqa: SLF001  a part of it


def claimed_event(claim: Claim) -> CausalEvent:
    """Return the event of a claim."""
    return causal_event(claim.event, claim.mark)


def _with_rest(leader: bytes, followers: Followers) -> list[Claim | bytes]:
    """Return claims of followers, followed by the leader's key if there may be more."""
    return [*followers.claims, leader] if followers.more else [*followers.claims]


def _wall_clock() -> int:
    return time_ns() // 1000


def _steady_clock() -> int:
    return monotonic_ns() // 1000
