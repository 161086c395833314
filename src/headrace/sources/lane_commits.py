"""Commits of several lanes at once, for brokers that store the progress of each lane by a request of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import HeadraceError
from headrace.sources.group_commit import GroupCommit


class LaneCommits:
    """Calls `commit` with the answers that wait, once for each lane, and for all lanes at once.

    `commit` returns its error. The broker payload of an item has its lane in `lane`, with a `name`.
    """

    def __init__(self, commit: Callable[[Sequence[AdvanceItem]], Awaitable[HeadraceError | None]]) -> None:
        self._commit = commit
        self._commits: GroupCommit[Sequence[AdvanceItem], HeadraceError | None] = GroupCommit(self._commit_all)

    async def submit(self, batch: Sequence[AdvanceItem]) -> None:
        """Commit the answers of one lane. Raises the error of `commit`."""
        error = await self._commits.submit(batch)
        if error is not None:
            raise error

    async def aclose(self) -> None:
        """Wait until no commit is running."""
        await self._commits.aclose()

    async def _commit_all(self, batches: list[Sequence[AdvanceItem]]) -> list[HeadraceError | None]:
        lanes: dict[str, list[AdvanceItem]] = {}
        for batch in batches:
            lanes.setdefault(_lane_of(batch), []).extend(batch)
        results = await asyncio.gather(*(self._commit(items) for items in lanes.values()))
        errors = dict(zip(lanes, results, strict=True))
        return [errors[_lane_of(batch)] for batch in batches]


def _lane_of(batch: Sequence[AdvanceItem]) -> str:
    return str(batch[0].broker_payload.lane.name)
