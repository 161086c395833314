"""The copier of dead letters is woken by each settlement that may open one."""

from __future__ import annotations

from typing import cast

import pytest

from headrace.core.ledger.outcome import Answer
from headrace.ports.triggerer_api import TriggererApi
from headrace.triggerer.runner.backlog import ApiBacklog
from headrace.wire.custody.backlog import BacklogItem, BacklogPage, SettleBacklog
from support.processes.api_twin import ApiTwin


class Api(ApiTwin):
    async def backlog(self, trigger_id: int, after: int, limit: int) -> BacklogPage:
        items = [BacklogItem(number=n, stream="s", lane="l", position=n, raw="{}", redriven=n == 2) for n in (1, 2)]
        return BacklogPage(items=items, depth=2)

    async def settle(self, settled: SettleBacklog, trigger_id: int) -> None:
        del settled, trigger_id


@pytest.mark.parametrize(
    ("number", "answer", "wakes"),
    [
        (1, "fired", 0),
        (1, "filtered", 0),
        (1, "rejected", 1),
        (1, "dead_lettered", 1),
        (2, "rejected", 1),
        (2, "fired", 1),  # the dead letter may be open again, for another trigger
    ],
)
async def test_the_copier_is_woken_if_a_dead_letter_may_be_open(number: int, answer: Answer, wakes: int) -> None:
    woken: list[int] = []
    backlog = ApiBacklog(cast(TriggererApi, Api()), 7, lambda _: 1, None, lambda: woken.append(1))
    entries = await backlog.fetch(0, 10)
    assert [(entry.number, entry.stream, entry.redriven) for entry in entries] == [(1, "s", False), (2, "s", True)]
    await backlog.settle([(number, answer)])
    assert len(woken) == wakes
