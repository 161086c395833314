"""Routes of receipts of shared streams, and of the copies of their dead letters."""

from __future__ import annotations

from fastapi import APIRouter, Response

from headrace.api.auth.authentication import Triggerer
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.wire_route import WireResponse, WireRoute
from headrace.api.routing import route
from headrace.wire.calls import execution as calls
from headrace.wire.custody.copies import FindUncopied, RecordCopies
from headrace.wire.custody.receipts import CountReceipts, FindLaneOffsets, ReceiptCount, SubscriberSetDefined, SubscriberSetDefinition
from headrace.wire.custody.seeks import BeginSeek, FinishSeek, SeekBegun

router = APIRouter(tags=["streams"], route_class=WireRoute)


@route(router, calls.DEFINE_SUBSCRIBER_SET)
def subscriber_sets(body: SubscriberSetDefinition, store: StoreOf, caller: Triggerer) -> SubscriberSetDefined:
    """Define a subscriber set. Receipts refer to it by its digest."""
    return store.receipts.define(caller.job_id, body)


@route(router, calls.COUNT_RECEIPTS)
def count_receipts(body: CountReceipts, store: StoreOf, caller: Triggerer) -> ReceiptCount:
    """Return the id of the event log, and the number of the stream's receipts in it."""
    return store.stream_logs.count_receipts(caller.job_id, body.stream)


@route(router, calls.GET_LANE_OFFSETS)
def recorded_offsets(body: FindLaneOffsets, store: StoreOf, caller: Triggerer) -> Response:
    """Return the last recorded position of each lane that has receipts."""
    return WireResponse(store.receipts.recorded_offsets(caller.job_id, body.stream, body.lanes))


@route(router, calls.FIND_UNCOPIED)
def uncopied_dead_letters(body: FindUncopied, store: StoreOf, caller: Triggerer) -> Response:
    """Return the next dead letters to copy for a stream that the job reads."""
    return WireResponse(store.dead_letter_copies.find(caller.job_id, body.reader))


@route(router, calls.RECORD_COPIES)
def record_copies(body: RecordCopies, store: StoreOf, caller: Triggerer) -> None:
    """Record that dead letters are copied to the broker, and which of them it refuses."""
    store.dead_letter_copies.record(caller.job_id, body)


@route(router, calls.BEGIN_SEEK)
def begin_seek(body: BeginSeek, store: StoreOf, caller: Triggerer) -> SeekBegun:
    """Record the lanes that the triggerer moves, before it moves them. Return the recorded positions."""
    return store.stream_seeks.begin(caller.job_id, body)


@route(router, calls.FINISH_SEEK)
def finish_seek(body: FinishSeek, store: StoreOf, caller: Triggerer) -> None:
    """Record that the upstream has stored the positions of these lanes."""
    store.stream_seeks.finish(caller.job_id, body)
