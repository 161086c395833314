"""Cut a plan that is too large for one request into pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from headrace.wire.pipelines.plans import Plan, PlanPage

MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of a page's items before base64, which adds a third. A single item may exceed it."""
_ITEM_BYTES: Final = 100
"""Bytes that an item counts for beside its data."""
_RUN_BYTES: Final = 400

_Item: TypeAlias = tuple[str, Any, int]
"""The field of the page, the item, and its size."""


def paged(plan: Plan) -> tuple[list[PlanPage], Plan]:
    """Return the pages to send first, and the plan to send after them. A small plan has no pages."""
    if sum(size for _, _, size in _items(plan)) <= MAX_PAGE_BYTES:
        return [], plan
    pages: list[PlanPage] = []
    room = 0
    for field, item, size in _items(plan):
        if not pages or size > room:
            page = PlanPage(epoch=plan.epoch, batch=plan.cursor.batch, page=len(pages), runs=[], slices=[], state={}, positions=[])
            pages.append(page)
            room = MAX_PAGE_BYTES
        if field == "state":
            key, value = item
            pages[-1].state[key] = value
        else:
            getattr(pages[-1], field).append(item)
        room -= size
    return pages, Plan(epoch=plan.epoch, cursor=plan.cursor, pages=len(pages), taken_back=plan.taken_back)


def _items(plan: Plan) -> Iterator[_Item]:
    for run in plan.runs:
        yield "runs", run, _RUN_BYTES + len(run.pipeline) + len(run.table or "")
    for data in plan.slices:
        yield "slices", data, _ITEM_BYTES + len(data)
    for key, value in plan.state.items():
        yield "state", (key, value), _ITEM_BYTES + len(key) + len(value or b"")
    for block in plan.positions:
        yield "positions", block, _ITEM_BYTES + len(block.data)
