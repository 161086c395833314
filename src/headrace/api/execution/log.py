"""Routes of the event log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
from fastapi import APIRouter, Query, Response
from fastapi.concurrency import run_in_threadpool

from headrace.api.auth.authentication import AnyJob, Triggerer
from headrace.api.http.dependencies import DurableOf, StoreOf
from headrace.api.http.problems import Refusal
from headrace.api.http.wire_route import JsonResponse, WireResponse, WireRoute
from headrace.api.routing import route
from headrace.store import Store
from headrace.store.log.log import LogPage, stored
from headrace.wire.base import rfc3339
from headrace.wire.calls import execution as calls
from headrace.wire.custody.events import EventBatch, LogHead, LogPosition
from headrace.wire.log import HEAD_HEADER, LAST_SEQ_HEADER
from headrace.wire.pipelines.plans import FindLeaders
from headrace.wire.pipelines.runs import GetEventsBySeq, Redeliveries

ARROW_STREAM = "application/vnd.apache.arrow.stream"
MAX_SEQ = 2**63 - 1
MAX_EVENTS = 200_000
MAX_SEQS = 10_000
MAX_WAIT_SECONDS = 20.0
PAGE: dict[str, Any] = {
    "description": "A page of the log",
    "content": {ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}}, "application/json": {"schema": {"type": "object"}}},
}

router = APIRouter(tags=["log"], route_class=WireRoute)


@route(router, calls.STORE_EVENTS)
async def append(batch: EventBatch, store: StoreOf, durable: DurableOf, caller: Triggerer) -> Response:
    """Store events, dead letters, spills and receipts in one durable commit. Batches that arrive together share a commit."""
    answered = await durable(store.log.append_later(caller.job_id, batch))
    return WireResponse(stored(answered))


@route(router, calls.GET_LOG_HEAD)
def head(store: StoreOf, caller: AnyJob) -> LogHead:
    """Return the first and the last `seq` of the log, and the time of the API server."""
    store.jobs.check(caller.job_id)
    return store.log.head()


@route(router, calls.WAIT_FOR_EVENTS)
async def news(
    store: StoreOf,
    caller: AnyJob,
    after: Annotated[int, Query(ge=0)] = 0,
    after_redelivery_id: Annotated[int, Query(ge=0)] = 0,
    wait: Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS)] = 0.0,
) -> LogPosition:
    """Return the last `seq` and redelivery once one is beyond `after` or `after_redelivery_id`, at the latest after `wait` seconds."""
    await run_in_threadpool(store.jobs.check, caller.job_id)
    loop = asyncio.get_running_loop()
    until = loop.time() + wait
    with _commits(store, loop) as committed:
        while True:
            committed.clear()
            position = await run_in_threadpool(store.log.news)
            left = until - loop.time()
            if position.head > after or position.last_redelivery_id > after_redelivery_id or left <= 0:
                return position
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await committed.wait()


@contextmanager
def _commits(store: Store, loop: asyncio.AbstractEventLoop) -> Iterator[asyncio.Event]:
    """Yield an event that is set after each commit."""
    committed = asyncio.Event()

    def notify() -> None:
        with suppress(RuntimeError):  # the loop has closed since: no task waits any more
            loop.call_soon_threadsafe(committed.set)

    unobserve = store.observe(notify)
    try:
        yield committed
    finally:
        unobserve()


@route(router, calls.GET_EVENTS_BY_SEQ, response_class=Response, responses={200: PAGE})
def get_by_seq(body: GetEventsBySeq, store: StoreOf, caller: AnyJob) -> Response:
    """Return the events of the log with these seqs, in order of `seq`, as an Arrow IPC stream.

    If their payloads are large, the response has the first events only, and a header has the last seq. Request the rest again.
    """
    project = store.jobs.project(caller.job_id)
    # A range that ends before it begins has nothing, and takes nothing from what the others have.
    count = sum(max(0, last - first + 1) for first, last in body.seqs)
    if count > MAX_SEQS:
        raise Refusal(422, "invalid", f"{count:,} events were requested at once.", hint=f"Ask for at most {MAX_SEQS:,}.")
    seqs = {seq for first, last in body.seqs for seq in range(first, last + 1)}
    picked = store.log.get_by_seq(sorted(seqs), project)
    headers = {} if picked.to is None else {LAST_SEQ_HEADER: str(picked.to)}
    return Response(_as_arrow(picked.table), headers=headers, media_type=ARROW_STREAM)


@route(router, calls.FIND_LEADERS)
def leaders(body: FindLeaders, store: StoreOf, caller: AnyJob) -> Response:
    """Return the leader of each event, and the triggers of the job's project that had fired on the event when it was stored."""
    return WireResponse(store.log.leaders(body.keys, store.jobs.project(caller.job_id)))


@route(router, calls.GET_REDELIVERIES)
def redeliveries(store: StoreOf, caller: AnyJob, after: Annotated[int, Query(ge=0)], to: Annotated[int, Query(ge=0)]) -> Redeliveries:
    """Return redeliveries with after < id <= to: late firings and redriven dead letters.

    Firings are those of the triggers of the job's project.
    """
    project = store.jobs.project(caller.job_id)
    return Redeliveries(redeliveries=store.log.redeliveries(after=after, to=to, project=project))


@route(router, calls.GET_EVENTS, response_class=Response, responses={200: PAGE})
def events(
    store: StoreOf,
    caller: AnyJob,
    after: Annotated[int, Query(ge=0, le=MAX_SEQ)] = 0,
    to: Annotated[int | None, Query(ge=0, le=MAX_SEQ)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_EVENTS)] = 50_000,
    format: Literal["arrow", "json"] = "arrow",
    scope: str | None = None,
) -> Response:
    """Return events with after < seq <= to in order of `seq`, as an Arrow IPC stream or as JSON.

    `triggers` has the triggers of the job's project that fired on the event.
    """
    del scope
    page = store.log.page(after=after, to=to, limit=limit, project=store.jobs.project(caller.job_id))
    headers = {HEAD_HEADER: str(page.head)}
    if format == "json":
        return JsonResponse(_as_json(page), headers=headers)
    return Response(_as_arrow(page.table), headers=headers, media_type=ARROW_STREAM)


def _as_arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    taken: bytes = sink.getvalue().to_pybytes()
    return taken


def _as_json(page: LogPage) -> bytes:
    """Return the page as JSON: keys in hexadecimal, times in RFC 3339, payloads as text."""
    rows = page.table.to_pylist()
    for row in rows:
        row["key"] = row["key"].hex()
        row["leader_key"] = None if row["leader_key"] is None else row["leader_key"].hex()
        row["occurred"] = rfc3339(row["occurred"])
        row["received"] = rfc3339(row["received"])
    return msgspec.json.encode({"head": page.head, "events": rows})
