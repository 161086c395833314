"""POST /execution/streams/receipts and GET /execution/streams/marks."""

from __future__ import annotations

from fastapi import APIRouter, Response

from headrace.api.access import DurableOf, StoreOf
from headrace.api.auth import Triggerer
from headrace.api.bodies import WireAnswer, WireRoute
from headrace.wire.custody import LaneMarks, Receipts

router = APIRouter(prefix="/execution/streams", tags=["streams"], route_class=WireRoute)


@router.post("/receipts", status_code=204)
async def receipts(given: Receipts, store: StoreOf, durable: DurableOf, caller: Triggerer) -> Response:
    """Record stretches of lanes that are about to be advanced, in one durable commit; what is recorded already is left as it is."""
    await durable(store.custody.record_later(caller.job_id, given))
    return Response(status_code=204)


@router.get("/marks", response_model=LaneMarks)
def marks(stream: str, store: StoreOf, caller: Triggerer) -> Response:
    """Return how far the custody of each lane of a stream is recorded."""
    return WireAnswer(store.custody.marks(caller.job_id, stream))
