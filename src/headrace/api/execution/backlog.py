"""GET /execution/triggers/{id}/backlog and POST …/settle."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from headrace.api.auth.authentication import Triggerer
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.wire_route import WireResponse, WireRoute
from headrace.store.custody.backlog import MOST_ITEMS
from headrace.wire.custody.backlog import BacklogPage, SettleBacklog

router = APIRouter(prefix="/execution/triggers", tags=["backlog"], route_class=WireRoute)


@router.get("/{trigger_id}/backlog", response_model=BacklogPage)
def backlog(
    trigger_id: int,
    store: StoreOf,
    caller: Triggerer,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_ITEMS)] = 500,
) -> Response:
    """Return what is kept for a trigger with number > `after`, the oldest first; a page is empty only when nothing is left."""
    page = store.backlog.page(caller.job_id, trigger_id, after=after, limit=limit)
    return WireResponse(page)


@router.post("/{trigger_id}/backlog/settle", status_code=204)
def settle(trigger_id: int, settled: SettleBacklog, store: StoreOf, caller: Triggerer) -> None:
    """Record the answers to raw events of a backlog, and delete them. An unknown one changes nothing."""
    store.backlog.settle(caller.job_id, trigger_id, settled)
