"""Commits of several lanes: together, one for each lane, each with its own error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import HeadraceError, StreamError
from headrace.sources.lane_commits import LaneCommits


def batch(lane: str, *numbers: int) -> list[AdvanceItem]:
    return [AdvanceItem(SimpleNamespace(lane=SimpleNamespace(name=lane), number=number), AdvanceOutcome(1, 0)) for number in numbers]


async def test_batches_that_wait_are_one_commit_for_each_lane_and_an_error_is_that_of_its_lane() -> None:
    commits: list[tuple[str, list[int]]] = []
    may_go_on = asyncio.Event()

    async def commit(items: Sequence[AdvanceItem]) -> HeadraceError | None:
        lane = items[0].broker_payload.lane.name
        commits.append((lane, [item.broker_payload.number for item in items]))
        await may_go_on.wait()
        return StreamError("away") if lane == "b" else None

    lanes = LaneCommits(commit)
    first = asyncio.create_task(lanes.submit(batch("a", 1)))
    await asyncio.sleep(0)
    others = [asyncio.create_task(lanes.submit(one)) for one in (batch("b", 1), batch("a", 2), batch("b", 2, 3))]
    await asyncio.sleep(0)
    may_go_on.set()
    await first
    await others[1]
    for failed in (others[0], others[2]):
        with pytest.raises(StreamError, match="away"):
            await failed
    assert commits == [("a", [1]), ("b", [1, 2, 3]), ("a", [2])]
    await lanes.aclose()
