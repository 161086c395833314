"""POST /execution/streams/receipts and GET /execution/streams/marks."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from headrace.api.access import StoreOf
from headrace.api.auth import Triggerer
from headrace.api.bodies import answer, described, read
from headrace.wire.custody import LaneMarks, Receipts

router = APIRouter(prefix="/execution/streams", tags=["streams"])


@router.post("/receipts", status_code=204, openapi_extra=described(Receipts))
async def receipts(request: Request, store: StoreOf, caller: Triggerer) -> Response:
    """Record stretches of lanes that are about to be advanced, in one durable commit; what is recorded already is left as it is."""
    given = await read(request, Receipts)
    await asyncio.wrap_future(store.custody.record_later(caller.job_id, given))
    return Response(status_code=204)


@router.get("/marks", response_model=LaneMarks)
def marks(stream: str, store: StoreOf, caller: Triggerer) -> Response:
    """Return how far the custody of each lane of a stream is recorded."""
    return Response(answer(store.custody.marks(caller.job_id, stream)), media_type="application/json")
