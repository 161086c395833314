"""Define subscriber sets with the api.

Each as the difference from the one before, so that a receipt costs the same however many triggers owe it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from headrace.core.ledger.subscriber_sets import EMPTY, digest_text, subscriber_set_digest
from headrace.errors import ApiRefused
from headrace.ports.triggerer_api import TriggererApi
from headrace.retry import retry_until_available
from headrace.wire.custody.receipts import MAX_MEMBERS, SubscriberSetDefinition

_MOST_KNOWN = 16  # subscriber sets of one stream: those that receipts under way may still name


class SubscriberSet(NamedTuple):
    """A set of triggers that the api knows by its digest."""

    owed: tuple[int, ...]
    digest: int


@dataclass(slots=True)
class _Stream:
    known: list[SubscriberSet] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SubscriberSets:
    """The subscriber sets of this process's streams, the last of each."""

    def __init__(self, api: TriggererApi) -> None:
        self._api = api
        self._streams: dict[str, _Stream] = defaultdict(_Stream)

    async def defined(self, stream: str, owed: tuple[int, ...]) -> str:
        """Return the digest of the subscriber set with these members, once the api knows it.

        Raises:
            ApiRefused: The api does not take the definition.
        """
        of = self._streams[stream]
        async with of.lock:
            digest = _known(of.known, owed)
            if digest is None:
                digest = await self._define(of, stream, owed)
        return digest_text(digest)

    def forget(self, stream: str) -> None:
        """Define the subscriber sets of this stream again: the api does not know one of them any more."""
        self._streams[stream].known.clear()

    async def _define(self, of: _Stream, stream: str, owed: tuple[int, ...]) -> int:
        base = of.known[-1] if of.known else SubscriberSet((), EMPTY)
        digest = await self._extend(stream, base, owed)
        if digest is None:
            of.known.clear()
            digest = await self._extend(stream, SubscriberSet((), EMPTY), owed)
        if digest is None:
            raise ApiRefused(f"The API does not accept the subscriber set of {len(owed):,} triggers of {stream}.", problem="invalid")
        of.known = [*of.known[1 - _MOST_KNOWN :], SubscriberSet(owed, digest)]
        return digest

    async def _extend(self, stream: str, base: SubscriberSet, owed: tuple[int, ...]) -> int | None:
        """Define the subscriber set in steps of bounded size. Return None if the api does not know the base (any more)."""
        digest = base.digest
        for joined, departed in _steps(base.owed, owed):
            after = subscriber_set_digest(joined, departed, digest)
            subscriber_set = SubscriberSetDefinition(
                stream=stream,
                digest=digest_text(after),
                base=None if digest == EMPTY else digest_text(digest),
                joined=joined,
                departed=departed,
            )
            answer = await retry_until_available(partial(self._api.define_subscriber_set, subscriber_set), "subscriber_set")
            if not answer.defined:
                return None
            digest = after
        return digest


def _known(subscriber_sets: list[SubscriberSet], owed: tuple[int, ...]) -> int | None:
    """Return the digest of a subscriber set that is defined; mostly `owed` is the very tuple of the last, which costs no comparison."""
    for subscriber_set in reversed(subscriber_sets):
        if subscriber_set.owed is owed:
            return subscriber_set.digest
    return next((subscriber_set.digest for subscriber_set in reversed(subscriber_sets) if subscriber_set.owed == owed), None)


def _steps(base: tuple[int, ...], owed: tuple[int, ...]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield who joins and who departs, a bounded number at a time."""
    before, after = set(base), set(owed)
    joined, departed = sorted(after - before), sorted(before - after)
    for start in range(0, max(len(joined), len(departed)), MAX_MEMBERS):
        yield joined[start : start + MAX_MEMBERS], departed[start : start + MAX_MEMBERS]
