"""POST /execution/streams/receipts, …/crews, …/books and …/marks."""

from __future__ import annotations

from fastapi import APIRouter, Response

from headrace.api.auth.authentication import Triggerer
from headrace.api.http.dependencies import DurableOf, StoreOf
from headrace.api.http.wire_route import WireResponse, WireRoute
from headrace.wire.custody.receipts import CrewDefined, CrewDefinition, LaneMarks, LookUpBooks, LookUpMarks, Receipts, StreamBooks

router = APIRouter(prefix="/execution/streams", tags=["streams"], route_class=WireRoute)


@router.post("/receipts", status_code=204)
async def receipts(given: Receipts, store: StoreOf, durable: DurableOf, caller: Triggerer) -> Response:
    """Record stretches of lanes that are about to be advanced, in one durable commit; what is recorded already is left as it is."""
    await durable(store.custody.record_later(caller.job_id, given))
    return Response(status_code=204)


@router.post("/crews")
def crews(given: CrewDefinition, store: StoreOf, caller: Triggerer) -> CrewDefined:
    """Define a set of triggers that owe answers together: receipts name it by its digest."""
    return store.custody.define(caller.job_id, given)


@router.post("/books")
def books(wanted: LookUpBooks, store: StoreOf, caller: Triggerer) -> StreamBooks:
    """Return which event log this is, and how many receipts of a stream it has."""
    return store.stream_logs.books(caller.job_id, wanted.stream)


@router.post("/marks", response_model=LaneMarks)
def marks(asked: LookUpMarks, store: StoreOf, caller: Triggerer) -> Response:
    """Return how far the custody of some lanes of a stream is recorded; a lane that is not named has none."""
    return WireResponse(store.custody.marks(caller.job_id, asked.stream, asked.lanes))
