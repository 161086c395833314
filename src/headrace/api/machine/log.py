"""POST /execution/triggers/events; GET /execution/events and …/head."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
from fastapi import APIRouter, Query, Response

from headrace.api.access import DurableOf, StoreOf
from headrace.api.auth import AnyJob, Triggerer
from headrace.api.bodies import BinaryAnswer, JsonAnswer, WireAnswer, WireRoute
from headrace.store.log import LogPage, stored
from headrace.wire.events import BatchStored, EventBatch, LogHead
from headrace.wire.log import HEAD_HEADER
from headrace.wire.model import rfc3339

ARROW_STREAM = "application/vnd.apache.arrow.stream"
MOST_EVENTS = 200_000
PAGE: dict[str, Any] = {
    "description": "A page of the log",
    "content": {ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}}, "application/json": {"schema": {"type": "object"}}},
}

router = APIRouter(prefix="/execution", tags=["log"], route_class=WireRoute)


@router.post("/triggers/events", response_model=BatchStored)
async def append(batch: EventBatch, store: StoreOf, durable: DurableOf, caller: Triggerer) -> Response:
    """Store events and dead letters in one durable commit; batches that arrive together share it."""
    answered = await durable(store.log.append_later(caller.job_id, batch))
    return WireAnswer(stored(answered))


@router.get("/events/head")
def head(store: StoreOf, caller: AnyJob) -> LogHead:
    """Return the log's first and last `seq`, and the api's clock."""
    store.jobs.check(caller.job_id)
    return store.log.head()


@router.get("/events", response_class=Response, responses={200: PAGE})
def events(
    store: StoreOf,
    caller: AnyJob,
    after: Annotated[int, Query(ge=0)] = 0,
    to: Annotated[int | None, Query(ge=0)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 50_000,
    format: Literal["arrow", "json"] = "arrow",
    scope: str | None = None,
) -> Response:
    """Return events with after < seq <= to in order of `seq`, as an Arrow IPC stream or as JSON; `scope` says for whom."""
    del scope
    store.jobs.check(caller.job_id)
    page = store.log.page(after=after, to=to, limit=limit)
    headers = {HEAD_HEADER: str(page.head)}
    if format == "json":
        return JsonAnswer(_as_json(page), headers=headers)
    return BinaryAnswer(_as_arrow(page), headers=headers, media_type=ARROW_STREAM)


def _as_arrow(page: LogPage) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, page.table.schema) as writer:
        writer.write_table(page.table)
    taken: bytes = sink.getvalue().to_pybytes()
    return taken


def _as_json(page: LogPage) -> bytes:
    """Return the page as JSON: keys in hexadecimal, moments in RFC 3339, and each payload as the text that it is."""
    rows = page.table.to_pylist()
    for row in rows:
        row["key"] = row["key"].hex()
        row["leader_key"] = None if row["leader_key"] is None else row["leader_key"].hex()
        row["occurred"] = rfc3339(row["occurred"])
        row["received"] = rfc3339(row["received"])
    return msgspec.json.encode({"head": page.head, "events": rows})
