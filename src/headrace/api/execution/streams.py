"""POST /execution/streams/subscriber-sets, …/books and …/marks."""

from __future__ import annotations

from fastapi import APIRouter, Response

from headrace.api.auth.authentication import Triggerer
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.wire_route import WireResponse, WireRoute
from headrace.wire.custody.receipts import LaneMarks, LookUpBooks, LookUpMarks, StreamBooks, SubscriberSetDefined, SubscriberSetDefinition

router = APIRouter(prefix="/execution/streams", tags=["streams"], route_class=WireRoute)


@router.post("/subscriber-sets")
def subscriber_sets(given: SubscriberSetDefinition, store: StoreOf, caller: Triggerer) -> SubscriberSetDefined:
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
