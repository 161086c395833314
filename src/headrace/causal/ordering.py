"""`CausalOrdering`: causes before effects for any asyncio program, in memory or over a database of its own.

The law: an event is handled in a scope once, after its leader; the process that handles a leader continues with its followers, one after
the other and never by recursion, however deep the chain. Nothing is settled before it was handled, and each event is settled by itself.
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

from headrace.causal.event import CausalEvent, causal_event, caused, micros
from headrace.causal.memory_store import MemoryOrderingStore
from headrace.causal.stores import open_home
from headrace.core.ordering.handling import Claim, DeliveryPolicy, OrderedEvent, ScopeCounters, State, WaitingEvent, waits_for
from headrace.errors import EventAlreadySeen, EventArrivedEarly
from headrace.ports.ordering_store import EXPIRED_EVENTS, Followers, OrderingStore, QueuedOrderingStore

log = structlog.get_logger(__name__)

T = TypeVar("T")
LOOKBACK: Final = timedelta(minutes=15)
RETENTION: Final = timedelta(days=7)
"""So long it is remembered what was handled."""
MOST_RETURNED: Final = 500
"""So many lost followers are returned at once."""
OFFERED_EVENTS: Final = 1_000
"""So many events are offered in one transaction: other processes wait for the writers' lock meanwhile."""
CLAIMED_EVENTS: Final = 20
"""So many events are claimed together: other processes can handle the rest meanwhile."""
MOST_IN_HAND: Final = 200

Handler = Callable[[CausalEvent], Awaitable[object]]

# What the task that runs is handling, so that a handler which asks for the order itself is let through.
_in_hand: ContextVar[frozenset[tuple[str, bytes]]] = ContextVar("headrace_in_hand", default=frozenset())


class CausalOrdering:
    """The causal order of one scope: any number of tasks may use it and, over a database, of processes.

    `store` is a home, or the URL of a database that holds nothing else (its tables are made on first use); none: memory. With `by_age`, an
    event that is older than `lookback` when it comes does not wait. What was handled is forgotten after `retention`, but not before
    `lookback`. `clock` gives µs since the epoch; without it, the clock of the database counts, or this machine's, and where that is set,
    waiting and forgetting go on by a steady clock. Use it as a context manager, or close it when done.
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
        chance: random.Random | None = None,
    ) -> None:
        self.scope = scope
        ticks = _steady_clock if clock is None else None
        self._home = open_home(scope, store, micros(lookback), policy=policy, by_age=by_age, retention=micros(retention), ticks=ticks)
        self._queue = self._home if isinstance(self._home, QueuedOrderingStore) else None
        self._clock = clock or (_wall_clock if self._queue is None else self._queue.clock)
        self._chance = chance or random.Random()  # noqa: S311  it only spreads retries
        self._memory = isinstance(self._home, MemoryOrderingStore)
        self._threads = ThreadPoolExecutor(4, "headrace-ordering")  # for a home that has no thread of its own

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store."""
        await asyncio.to_thread(self._home.close)
        self._threads.shutdown()

    def preceding_event_confirmed(self, handler: Handler, event: CausalEvent) -> Confirmed:
        """Handle `event` in the body if its leader was handled; afterwards, call `handler` with each event that waited for it, in order.

        An error of the body is raised and the event may come again; an error of `handler` is kept with its event, which is tried again by
        `handle_ready`, and holds back only what follows it.

        Raises:
            EventArrivedEarly: Its leader was not handled yet: it waits, durably where the home is, and its turn comes by itself.
            EventAlreadySeen: It was handled, is given up, or is being handled now.
        """
        return Confirmed(self, handler, event)

    async def event_has_been_seen(self, event: CausalEvent | str, *, source: str = "") -> bool:
        """Whether the event was handled in this scope."""
        return await self._state(event, source) == "handled"

    async def record_event_as_seen(self, event: CausalEvent) -> None:
        """Count an event as handled that was handled elsewhere, whatever it waits for; not one that is being handled now.

        What follows it is then ready, and found by `handle_ready` and `get_lost_followers`.
        """
        taken = caused(event)
        found = await self._claiming(self._home.enter, taken, self._clock())
        if isinstance(found, Claim):
            await self._claiming(self._home.finish, found, self._clock(), 0)
        elif found not in {"handled", "claimed"}:
            await self._call(self._home.forget, taken.key, self._clock())

    async def record_follower(self, event: CausalEvent) -> None:
        """Add an event: it is ready, or waits for its leader. A repeated event changes nothing."""
        await self.offer([event])

    async def forget_follower(self, event: CausalEvent) -> None:
        """Count an event as handled that came, and that is not being handled now.

        What follows it is ready then. One that never came stays so.
        """
        await self._call(self._home.forget, caused(event).key, self._clock())

    async def get_followers(self, leader: CausalEvent) -> list[CausalEvent]:
        """Return the events that follow `leader` and that are not being handled, in order of (occurred, id)."""
        return [causal_event(one) for one in await self._call(self._home.followers, caused(leader).key)]

    async def get_lost_followers(self) -> list[CausalEvent]:
        """Give up on leaders that did not come in time; return the events to handle now: their followers, and events to retry.

        Handle each with `preceding_event_confirmed`, which raises `EventAlreadySeen` for one that another process handles by then; or let
        `handle_ready` do all of it. An event is returned each time until it is handled.
        """
        await self.expire()
        while len(found := await self._call(self._home.ready, MOST_RETURNED, self._clock())) < MOST_RETURNED:
            if not await self._call(self._home.release_some, self._clock()):
                break
        return [causal_event(one, mark) for one, mark in found]

    async def offer(self, events: Iterable[CausalEvent]) -> list[State]:
        """Take many events; return what each is now. Each OFFERED_EVENTS are a transaction of their own."""
        rest, states = [caused(event) for event in events], list[State]()
        for start in range(0, len(rest), OFFERED_EVENTS):
            states += await self._call(self._home.offer, rest[start : start + OFFERED_EVENTS], self._clock())
        if len(rest) > OFFERED_EVENTS:  # some became ready for what came later
            for start in range(0, len(rest), OFFERED_EVENTS):
                keys = [event.key for event in rest[start : start + OFFERED_EVENTS]]
                states[start : start + OFFERED_EVENTS] = [state or "handled" for state in await self._call(self._home.states, keys)]
        return states

    async def expire(self) -> int:
        """Give up on leaders that did not come within the lookback; return how many events were released for that."""
        lost = some = await self._call(self._home.expire_some, self._clock())
        while some >= EXPIRED_EVENTS:
            some = await self._call(self._home.expire_some, self._clock())
            lost += some
        return lost

    async def claim(self, most: int) -> list[Claim]:
        """Claim up to `most` events to be handled one after the other in this order; `claimed_event` gives what to handle.

        They are ours for `DeliveryPolicy.lease`: `renew` them before that is over, and `confirm`, `give_back` or `fail` each.
        """
        while not (claims := await self._call(self._home.claim, most, self._clock())):
            if not await self._call(self._home.release_some, self._clock()):
                break
        return claims

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        """Renew the leases of claims; return the claims that are still ours. The others must not be handled."""
        return await self._call(self._home.renew, claims, self._clock())

    async def confirm(self, claim: Claim) -> bool:
        """Count a claim as handled; False if it was not ours any more."""
        return bool(await self.settle([claim]))

    async def settle(self, claims: Sequence[Claim]) -> int:
        """Count claims as handled; return how many still were ours."""
        return await self._call(self._home.settle, claims, self._clock())

    async def give_back(self, claim: Claim) -> None:
        """Release a claim that was not tried."""
        await self._call(self._home.give_back, [claim], self._clock())

    async def fail(self, claim: Claim, error: BaseException) -> bool:
        """Record a failed claim: the policy retries it or marks it dead. Return False if the claim is not ours any more."""
        now = self._clock()
        again = self._home.policy.retry_at(claim.attempts, now, self._chance.random())
        return await self._call(self._home.fail, claim, now, f"{type(error).__name__}: {error}", again)

    async def handle_ready(self, handler: Handler, most: int = CLAIMED_EVENTS) -> int:
        """Handle what is ready, lost and due to be tried again, and what waited for that; return how many were handled.

        Up to `most` events are claimed at once, and settled one by one.
        """
        await self.expire()
        handled = 0
        while True:
            claims = await self._claiming(self._home.take_ready, most, self._clock())
            handled += await self._work_off(handler, claims)
            if not claims and not await self._call(self._home.release_some, self._clock()):
                return handled

    async def waits(self, limit: int = 100) -> list[WaitingEvent]:
        """Return what waits for whom, the longest first."""
        return await self._call(self._home.waits, limit)

    async def counts(self) -> ScopeCounters:
        """Return what the scope came to."""
        return await self._call(self._home.counts)

    async def redrive(self, events: Iterable[CausalEvent] | None = None) -> int:
        """Try dead events again (all of them, if none are named); return how many there were."""
        keys = None if events is None else [caused(event).key for event in events]
        if self._memory:
            return self._home.redrive(keys, self._clock())
        # not as one work of the home's thread: that would be one transaction, however many there are
        return await asyncio.shield(asyncio.wrap_future(self._threads.submit(self._home.redrive, keys, self._clock())))

    async def _begin(self, event: CausalEvent, taken: OrderedEvent) -> Claim:
        found = await self._claiming(self._home.enter, taken, self._clock())
        if isinstance(found, Claim):
            return found
        if found in {"waiting", "blocked"}:
            raise EventArrivedEarly(f"Event '{event.id}' came before '{event.follows}', which it follows, was handled; it waits.")
        raise EventAlreadySeen(f"Event '{event.id}' is {'in hand' if found in {'claimed', 'ready'} else found} already.")

    async def _end(self, handler: Handler, claim: Claim) -> None:
        followers = await self._finish(claim, CLAIMED_EVENTS)
        if followers is not None and (work := _with_rest(claim.event.key, followers)):
            await self._work_off(handler, work)

    async def _work_off(self, handler: Handler, found: Iterable[Claim | bytes]) -> int:
        """Handle claims and what follows them, first come, first handled; a key stands for the rest of what follows that event."""
        work: deque[Claim | bytes] = deque(found)
        handled, held = 0, set[bytes]()
        try:
            while work:
                one = work[0]
                if isinstance(one, bytes):
                    more = await self._claiming(self._home.take_followers, one, CLAIMED_EVENTS, self._clock())
                    work.popleft()
                    work.extendleft(reversed(_with_rest(one, more)))
                    continue
                work.popleft()
                if held and waits_for(one, held):
                    held.add(one.event.key)
                    await self.give_back(one)
                    continue
                room = CLAIMED_EVENTS if len(work) < MOST_IN_HAND else 0
                followers = await self._handle(handler, one, room)
                if followers is None:
                    held.add(one.event.key)
                else:
                    handled += 1
                    work.extend(_with_rest(one.event.key, followers))
        finally:
            rest = [one for one in work if isinstance(one, Claim)]
            if rest:
                await self._abandon(rest)
        return handled

    async def _handle(self, handler: Handler, claim: Claim, room: int) -> Followers | None:
        """Handle one claim, and return what `finish` does; what fails is kept with its error."""
        before = _in_hand.get()
        _in_hand.set(before | {(self.scope, claim.event.key)})
        try:
            await handler(claimed_event(claim))
        except BaseException as error:
            await self._failed(claim, error)
            if not isinstance(error, Exception):
                raise
            return None
        finally:
            _in_hand.set(before)
        return await self._finish(claim, room)

    async def _finish(self, claim: Claim, room: int) -> Followers | None:
        try:
            return await self._claiming(self._home.finish, claim, self._clock(), room)
        except Exception:
            await self._drop([claim])
            raise

    async def _failed(self, claim: Claim, error: BaseException) -> None:
        if isinstance(error, Exception):
            try:
                await self.fail(claim, error)
            except Exception:
                await self._drop([claim])
                raise
        else:
            await self._abandon([claim])  # a cancellation does not count as a failure

    async def _abandon(self, claims: Sequence[Claim]) -> None:
        """Give claims back because of an error that the caller raises: that one counts, also where the database takes no writes."""
        try:
            try:
                await self._call(self._home.give_back, claims, self._clock())
            except Exception:
                await self._drop(claims)
                raise
        except Exception as error:
            log.warning("events not given back", scope=self.scope, events=len(claims), error=str(error))

    async def _drop(self, claims: Sequence[Claim]) -> None:
        """Release claims as if this process had ended: otherwise they stay in hand for its lifetime."""
        for claim in claims:
            await self._call(self._home.drop, claim)

    async def _state(self, event: CausalEvent | str, source: str) -> State | None:
        key = (OrderedEvent.of(source, event, None, 0) if isinstance(event, str) else caused(event)).key
        return (await self._call(self._home.states, [key]))[0]

    async def _call(self, method: Callable[..., T], *given: Any) -> T:
        return method(*given) if self._memory else await asyncio.shield(asyncio.wrap_future(self._submit(method, *given)))

    async def _claiming(self, method: Callable[..., T], *given: Any) -> T:
        """Call what claims events; what it claims for a task that was cancelled meanwhile is given back."""
        if self._memory:
            return method(*given)
        future = self._submit(method, *given)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            future.add_done_callback(self._give_back_unwanted)
            raise

    def _submit(self, method: Callable[..., T], *given: Any) -> Future[T]:
        if self._queue is not None:
            return self._queue.submit(method, *given)
        return self._threads.submit(partial(method, *given))

    def _give_back_unwanted(self, future: Future[Any]) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        found = future.result()
        claims = [found] if isinstance(found, Claim) else found.claims if isinstance(found, Followers) else found
        if isinstance(claims, list) and claims:
            self._submit(self._home.give_back, claims, self._clock())


class Confirmed:
    """The context in which one event is handled; `CausalOrdering.preceding_event_confirmed` makes it."""

    __slots__ = ("_before", "_claim", "_event", "_handler", "_ordering")

    def __init__(self, ordering: CausalOrdering, handler: Handler, event: CausalEvent) -> None:
        self._ordering = ordering
        self._handler = handler
        self._event = event
        self._claim: Claim | None = None
        self._before: frozenset[tuple[str, bytes]] = frozenset()

    async def __aenter__(self) -> None:
        ordering, taken = self._ordering, caused(self._event)
        self._before = before = _in_hand.get()
        mine = (ordering.scope, taken.key)
        if mine not in before:
            self._claim = await ordering._begin(self._event, taken)  # noqa: SLF001  a part of it
            _in_hand.set(before | {mine})

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        claim = self._claim
        if claim is None:
            return
        self._claim = None
        _in_hand.set(self._before)
        if error is None:
            await self._ordering._end(self._handler, claim)  # noqa: SLF001  a part of it
        else:
            await self._ordering._failed(claim, error)  # noqa: SLF001  a part of it


def claimed_event(claim: Claim) -> CausalEvent:
    """Return the event that a claim is for."""
    return causal_event(claim.event, claim.mark)


def _with_rest(leader: bytes, followers: Followers) -> list[Claim | bytes]:
    """Return claims of followers, and the leader's key if there may be more of them."""
    return [*followers.claims, leader] if followers.more else [*followers.claims]


def _wall_clock() -> int:
    return time_ns() // 1000


def _steady_clock() -> int:
    return monotonic_ns() // 1000
