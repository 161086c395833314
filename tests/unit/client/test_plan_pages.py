"""A plan of any size is sent in requests within the limits of the API."""

from __future__ import annotations

import random

from headrace.client.http.bodies import as_body
from headrace.client.plan_pages import paged
from headrace.wire.base import MAX_BODY_BYTES
from headrace.wire.custody.events import Cursor
from headrace.wire.pipelines.plans import Plan, PlannedRun, PositionBlock


def run(number: int) -> PlannedRun:
    return PlannedRun(number=number, pipeline="p" * 200, table="t" * 200, events=1, first=1, last=1, slice=number)


def test_a_small_plan_has_no_pages() -> None:
    plan = Plan(epoch=1, cursor=Cursor(cursor=1, batch=1), runs=[run(0)], slices=[b"a"], state={"scope": b"s", "late": None})
    assert paged(plan) == ([], plan)


def test_the_pages_of_a_large_plan_add_up_to_the_plan() -> None:
    chance = random.Random(17)
    plan = Plan(
        epoch=3,
        cursor=Cursor(cursor=9, batch=4),
        runs=[run(number) for number in range(10_000)],
        slices=[chance.randbytes(chance.choice([0, 10, 1_000])) for _ in range(10_000)] + [chance.randbytes(3_000_000) for _ in range(5)],
        state={f"order/w/{number}": chance.choice([None, chance.randbytes(200_000)]) for number in range(100)},
        positions=[PositionBlock(first=number, last=number, data=chance.randbytes(9_000)) for number in range(1_000)],
    )
    pages, last = paged(plan)
    assert [page.page for page in pages] == list(range(last.pages))
    assert {(page.epoch, page.batch) for page in pages} == {(3, 4)}
    assert max(len(as_body(page)) for page in pages) < MAX_BODY_BYTES / 2
    assert [one for page in pages for one in page.runs] == plan.runs
    assert [one for page in pages for one in page.slices] == plan.slices
    assert {key: value for page in pages for key, value in page.state.items()} == plan.state
    assert [one for page in pages for one in page.positions] == plan.positions
    assert last == Plan(epoch=3, cursor=plan.cursor, pages=len(pages))
