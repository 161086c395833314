"""Define subscriber sets with the API.

Each definition is the difference from the previous set, so the cost of a receipt does not depend on the number of
triggers.
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
from headrace.wire.calls.execution import DEFINE_SUBSCRIBER_SET
from headrace.wire.custody.receipts import MAX_MEMBERS, SubscriberSetDefinition

_MAX_KNOWN = 16  # subscriber sets of one stream that receipts in flight may still name


class SubscriberSet(NamedTuple):
    """A set of triggers, known to the API by its digest."""

    owed: tuple[int, ...]
    digest: int


@dataclass(slots=True)
class _Stream:
    known: list[SubscriberSet] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SubscriberSets:
    """The latest subscriber sets of this process's streams."""

    def __init__(self, api: TriggererApi) -> None:
        self._api = api
        self._streams: dict[str, _Stream] = defaultdict(_Stream)

    async def define(self, stream: str, owed: tuple[int, ...]) -> str:
        """Define the subscriber set with these members if necessary, and return its digest.

        Raises:
            ApiRefused: The API does not accept the definition.
        """
        of = self._streams[stream]
        async with of.lock:
            digest = _known(of.known, owed)
            if digest is None:
                digest = await self._define_next(of, stream, owed)
        return digest_text(digest)

    def reset(self, stream: str) -> None:
        """Define the subscriber sets of this stream again, because the API no longer knows one of them."""
        self._streams[stream].known.clear()

    async def _define_next(self, of: _Stream, stream: str, owed: tuple[int, ...]) -> int:
        base = of.known[-1] if of.known else SubscriberSet((), EMPTY)
        digest = await self._extend(stream, base, owed)
        if digest is None:
            of.known.clear()
            digest = await self._extend(stream, SubscriberSet((), EMPTY), owed)
        if digest is None:
            raise ApiRefused(f"The API does not accept the subscriber set of {len(owed):,} triggers of {stream}.", problem="invalid")
        of.known = [*of.known[1 - _MAX_KNOWN :], SubscriberSet(owed, digest)]
        return digest

    async def _extend(self, stream: str, base: SubscriberSet, owed: tuple[int, ...]) -> int | None:
        """Define the subscriber set in steps of bounded size. Return None if the API does not know the base."""
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
            answer = await retry_until_available(partial(self._api.request, DEFINE_SUBSCRIBER_SET, subscriber_set), "subscriber_set")
            if not answer.defined:
                return None
            digest = after
        return digest


def _known(subscriber_sets: list[SubscriberSet], owed: tuple[int, ...]) -> int | None:
    """Return the digest of a defined subscriber set, or None. Usually `owed` is the same tuple as before, which needs no comparison."""
    for subscriber_set in reversed(subscriber_sets):
        if subscriber_set.owed is owed:
            return subscriber_set.digest
    return next((subscriber_set.digest for subscriber_set in reversed(subscriber_sets) if subscriber_set.owed == owed), None)


def _steps(base: tuple[int, ...], owed: tuple[int, ...]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield members that join and members that depart, in chunks of bounded size."""
    before, after = set(base), set(owed)
    joined, departed = sorted(after - before), sorted(before - after)
    for start in range(0, max(len(joined), len(departed)), MAX_MEMBERS):
        yield joined[start : start + MAX_MEMBERS], departed[start : start + MAX_MEMBERS]
