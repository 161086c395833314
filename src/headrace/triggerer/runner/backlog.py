"""The backlog of one trigger, stored by the API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from headrace.ports.triggerer_api import TriggererApi
from headrace.retry import retry_until_available
from headrace.streams.backlog import Answer, BacklogEntry
from headrace.wire.calls.execution import GET_BACKLOG, SETTLE_BACKLOG
from headrace.wire.custody.backlog import GIVEN_UP, SettleBacklog, Settled

DecodeEntries: TypeAlias = Callable[[Sequence[BacklogEntry]], Awaitable[Sequence[BacklogEntry]]]
"""Decodes the malformed messages of a page again."""


class ApiBacklog:
    """A `Backlog` over the execution API. `epoch` returns the trigger's current epoch. `decode` decodes malformed messages again.
    `reopened` is called if a dead letter may be open again: for its trigger, which gave up again, or for triggers absent from the redrive.
    """

    def __init__(
        self,
        api: TriggererApi,
        trigger_id: int,
        epoch: Callable[[int], int],
        decode: DecodeEntries | None = None,
        reopened: Callable[[], None] | None = None,
    ) -> None:
        self._api = api
        self._trigger_id = trigger_id
        self._epoch = epoch
        self._decode = decode
        self._reopened = reopened
        self._redriven: set[int] = set()

    async def fetch(self, after: int, limit: int) -> Sequence[BacklogEntry]:
        """Return the oldest entries after number `after`, up to `limit`."""
        page = await retry_until_available(
            lambda: self._api.request(GET_BACKLOG, None, query={"after": after, "limit": limit}, trigger_id=self._trigger_id), "backlog"
        )
        self._redriven.update(item.number for item in page.items if item.redriven)
        entries = [
            BacklogEntry(item.number, item.stream, item.lane, item.position, item.raw, item.attempts, redriven=item.redriven)
            for item in page.items
        ]
        return entries if self._decode is None else await self._decode(entries)

    async def settle(self, settled: Sequence[tuple[int, Answer]], reasons: Mapping[int, str] = MappingProxyType({})) -> None:
        """Delete these entries durably. `reasons` has, by number, why an entry is a dead letter again."""
        answers = [Settled(number=number, answer=answer, reason=reasons.get(number)) for number, answer in settled]
        await retry_until_available(
            lambda: self._api.request(
                SETTLE_BACKLOG, SettleBacklog(epoch=self._epoch(self._trigger_id), settled=answers), trigger_id=self._trigger_id
            ),
            "settle backlog",
        )
        redriven = self._redriven.intersection(number for number, _ in settled)
        self._redriven -= redriven
        if self._reopened is not None and (redriven or any(answer in GIVEN_UP for _, answer in settled)):
            self._reopened()
