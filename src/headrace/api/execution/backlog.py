"""Routes of backlogs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from headrace.api.auth.authentication import Triggerer
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.wire_route import WireResponse, WireRoute
from headrace.api.routing import route
from headrace.store.custody.backlog import MAX_PAGE_ITEMS
from headrace.wire.calls import execution as calls
from headrace.wire.custody.backlog import SettleBacklog

router = APIRouter(tags=["backlog"], route_class=WireRoute)


@route(router, calls.GET_BACKLOG)
def backlog(
    trigger_id: int,
    store: StoreOf,
    caller: Triggerer,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE_ITEMS)] = 500,
) -> Response:
    """Return the backlog of a trigger from the first number after `after`, the oldest first. An empty page is the end."""
    page = store.backlog.page(caller.job_id, trigger_id, after=after, limit=limit)
    return WireResponse(page)


@route(router, calls.SETTLE_BACKLOG)
def settle(trigger_id: int, settled: SettleBacklog, store: StoreOf, caller: Triggerer) -> None:
    """Record the answers to raw events of a backlog and delete the raw events."""
    store.backlog.settle(caller.job_id, trigger_id, settled)
