"""`CausalOrdering`: causes before effects for any asyncio program, in memory or over a database of its own.

The law: an event is handled in a scope once, after its leader; whoever handles a leader goes on with what waited for it, one after the
other and never by recursion, however deep the chain. Nothing is settled before it was handled.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import Any, Final, Self, TypeVar

import msgspec

from headrace.core.handling import Caused, Claim, Counts, HandlingPolicy, State, Wait, waits_for
from headrace.core.ordering import LOST
from headrace.errors import EventAlreadySeen, EventArrivedEarly
from headrace.ordering.memory import MemoryHome
from headrace.ports.ordering import OrderingHome

T = TypeVar("T")
LOOKBACK: Final = timedelta(minutes=15)
STRETCH: Final = 500
"""So many events are claimed, handled and settled together when a leader is followed by many."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CausalEvent:
    """An event with the id of the one that it follows, if there is one; `payload` is anything that JSON holds.

    Ids are told apart by `source`, and a leader has the same source. `mark` says `lost`, `late` or `cycle` of an event that is handed on.
    """

    id: str
    occurred: datetime
    follows: str | None = None
    payload: Any = None
    source: str = ""
    mark: str | None = None


Handler = Callable[[CausalEvent], Awaitable[object]]

# What the task that runs is handling, so that a handler which asks for the order itself is let through.
_in_hand: ContextVar[frozenset[tuple[str, bytes]]] = ContextVar("headrace_in_hand", default=frozenset())


class CausalOrdering:
    """The causal order of one scope: any number of tasks may use it and, over a database, of processes.

    `store` is a home, or the URL of a database that holds nothing else (its tables are made on first use); none: memory. `clock` gives
    µs since the epoch. Use it as a context manager, or close it when done.
    """

    def __init__(
        self,
        scope: str,
        store: OrderingHome | str | None = None,
        *,
        lookback: timedelta = LOOKBACK,
        policy: HandlingPolicy | None = None,
        clock: Callable[[], int] | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.scope = scope
        self._home = _home(scope, store, lookback // _MICROSECOND, policy)
        self._clock = clock or _wall_clock
        self._chance = chance or random.Random()  # noqa: S311  it only spreads retries
        self._threads = not isinstance(self._home, MemoryHome)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the home."""
        await self._call(self._home.close)

    @asynccontextmanager
    async def preceding_event_confirmed(self, handler: Handler, event: CausalEvent) -> AsyncGenerator[None]:
        """Handle `event` in the body if its leader was handled; afterwards, call `handler` with each event that waited for it, in order.

        An error of the body is raised and the event may come again; an error of `handler` is kept with its event, which is tried again by
        `handle_ready`, and holds back only what follows it.

        Raises:
            EventArrivedEarly: Its leader was not handled yet: it waits, durably where the home is, and its turn comes by itself.
            EventAlreadySeen: It was handled, is given up, or somebody handles it now.
        """
        taken = _caused(event)
        if (self.scope, taken.key) in _in_hand.get():
            yield
            return
        claim = await self._begin(event, taken)
        try:
            with _holding(self.scope, [claim]):
                yield
        except BaseException as error:
            await self._failed(claim, error)
            raise
        await self.settle([claim])
        await self._follow(handler, taken.key)

    async def event_has_been_seen(self, event: CausalEvent | str, *, source: str = "") -> bool:
        """Whether the event was handled in this scope."""
        return await self._state(event, source) == "handled"

    async def record_follower(self, event: CausalEvent) -> None:
        """Let an event wait for its leader, or be ready if it need not; one that came before changes nothing."""
        await self.offer([event])

    async def forget_follower(self, event: CausalEvent) -> None:
        """Count an event as handled that is not in anybody's hands; what follows it is ready then."""
        key = _caused(event).key
        await self._call(self._home.forget, key, self._clock())

    async def get_followers(self, leader: CausalEvent) -> list[CausalEvent]:
        """Return the events that wait for `leader`, in order of (occurred, id)."""
        return [_event(one) for one in await self._call(self._home.followers, _caused(leader).key)]

    async def get_lost_followers(self) -> list[CausalEvent]:
        """Give up on leaders that did not come in time, and return what followed them and is to be handled now: they are claimed.

        Confirm each with `preceding_event_confirmed`, or let `handle_ready` do all of it.
        """
        await self.expire()
        claims = await self.claim(STRETCH)
        await self._call(self._home.give_back, [claim for claim in claims if claim.mark != LOST], self._clock())
        return [claimed_event(claim) for claim in claims if claim.mark == LOST]

    async def offer(self, events: Iterable[CausalEvent]) -> list[State]:
        """Take many events at once; return what each is now."""
        return await self._call(self._home.offer, [_caused(event) for event in events], self._clock())

    async def expire(self) -> int:
        """Give up on leaders that did not come within the lookback; return how many events were released for that."""
        return await self._call(self._home.expire, self._clock())

    async def claim(self, most: int) -> list[Claim]:
        """Claim up to `most` events to be handled one after the other in this order; `claimed_event` gives what to handle."""
        return await self._call(self._home.claim, most, self._clock())

    async def settle(self, claims: Sequence[Claim]) -> int:
        """Count claims as handled; return how many still were ours."""
        return await self._call(self._home.settle, claims, self._clock())

    async def handle_ready(self, handler: Handler, most: int = STRETCH) -> int:
        """Handle what is ready, lost and due to be tried again, and what waited for that; return how many were handled."""
        await self.expire()
        handled = 0
        while claims := await self.claim(most):
            handled += len(await self._handle(handler, claims))
        return handled

    async def waits(self, limit: int = 100) -> list[Wait]:
        """Return what waits for whom, the longest first."""
        return await self._call(self._home.waits, limit)

    async def counts(self) -> Counts:
        """Return what the scope came to."""
        return await self._call(self._home.counts)

    async def redrive(self, events: Iterable[CausalEvent] | None = None) -> int:
        """Try dead events again (all of them, if none are named); return how many there were."""
        keys = None if events is None else [_caused(event).key for event in events]
        return await self._call(self._home.redrive, keys, self._clock())

    async def _begin(self, event: CausalEvent, taken: Caused) -> Claim:
        now = self._clock()
        (state,) = await self._call(self._home.offer, [taken], now)
        claims = await self._call(self._claim_one, taken.key, now)
        if claims:
            return claims[0]
        if state in {"waiting", "blocked"}:
            raise EventArrivedEarly(f"Event '{event.id}' came before '{event.follows}', which it follows, was handled; it waits.")
        raise EventAlreadySeen(f"Event '{event.id}' is {'in hand' if state == 'claimed' else state} already.")

    def _claim_one(self, key: bytes, now: int) -> list[Claim]:
        return self._home.claim(1, now, only=key)

    async def _follow(self, handler: Handler, key: bytes) -> None:
        """Handle what waited for `key`, and what waited for that: a worklist, so that no chain is too deep."""
        above: list[bytes] = [key]
        while above:
            claims = await self._call(self._claim_after, above, self._clock())
            handled = await self._handle(handler, claims)
            # as long as a claim is full, there may be more of the same leaders
            above = [*(above if len(claims) == STRETCH else ()), *(claim.event.key for claim in handled)]

    def _claim_after(self, keys: Sequence[bytes], now: int) -> list[Claim]:
        return self._home.claim(STRETCH, now, after=keys)

    async def _handle(self, handler: Handler, claims: Sequence[Claim]) -> list[Claim]:
        """Handle claims in order; return those that were. What fails is kept with its error, and what it holds back is given back."""
        handled: list[Claim] = []
        failed: list[tuple[Claim, Exception]] = []
        held: set[bytes] = set()
        try:
            for claim in claims:
                if waits_for(claim, held):
                    held.add(claim.event.key)
                    continue
                with _holding(self.scope, [claim]):
                    try:
                        await handler(claimed_event(claim))
                    except Exception as error:
                        failed.append((claim, error))
                        held.add(claim.event.key)
                        continue
                handled.append(claim)
        finally:
            done = {claim.seq for claim in handled} | {claim.seq for claim, _ in failed}
            rest = [claim for claim in claims if claim.seq not in done]
            await self._settled(handled, failed, rest)
        return handled

    async def _settled(self, handled: Sequence[Claim], failed: Sequence[tuple[Claim, Exception]], rest: Sequence[Claim]) -> None:
        await self._call(self._home.give_back, rest, self._clock())
        await self.settle(handled)
        for claim, error in failed:
            await self._failed(claim, error)

    async def _failed(self, claim: Claim, error: BaseException) -> None:
        now = self._clock()
        if isinstance(error, Exception):
            again = self._home.policy.retry_at(claim.attempts, now, self._chance.random())
            await self._call(self._home.fail, claim, now, f"{type(error).__name__}: {error}", again)
        else:
            await self._call(self._home.give_back, [claim], now)  # a cancellation is nobody's failure

    async def _state(self, event: CausalEvent | str, source: str) -> State | None:
        key = (Caused.of(source, event, None, 0) if isinstance(event, str) else _caused(event)).key
        return (await self._call(self._home.states, [key]))[0]

    async def _call(self, method: Callable[..., T], *given: Any) -> T:
        return await asyncio.to_thread(method, *given) if self._threads else method(*given)


def claimed_event(claim: Claim) -> CausalEvent:
    """Return the event that a claim is for."""
    return _event(claim.event, claim.mark)


class _holding:  # noqa: N801  reads like a statement
    """The task that runs has these claims in hand."""

    def __init__(self, scope: str, claims: Iterable[Claim]) -> None:
        self._mine = {(scope, claim.event.key) for claim in claims}

    def __enter__(self) -> None:
        self._token = _in_hand.set(_in_hand.get() | self._mine)

    def __exit__(self, *_: object) -> None:
        _in_hand.reset(self._token)


def _home(scope: str, store: OrderingHome | str | None, lookback: int, policy: HandlingPolicy | None) -> OrderingHome:
    if store is None:
        return MemoryHome(lookback, policy=policy)
    if isinstance(store, str):
        from headrace.store.ordering_scopes import OwnOrdering  # late: SQLAlchemy is an extra

        return OwnOrdering(store, scope, lookback, policy=policy)
    return store


def _caused(event: CausalEvent) -> Caused:
    body = msgspec.json.encode(event.payload).decode()
    return Caused.of(event.source, event.id, event.follows, (event.occurred - _EPOCH) // _MICROSECOND, body)


def _event(taken: Caused, mark: str | None = None) -> CausalEvent:
    return CausalEvent(
        id=taken.id,
        occurred=_EPOCH + timedelta(microseconds=taken.occurred),
        follows=taken.follows,
        payload=msgspec.json.decode(taken.body or "null"),
        source=taken.source,
        mark=mark,
    )


def _wall_clock() -> int:
    return time_ns() // 1000
