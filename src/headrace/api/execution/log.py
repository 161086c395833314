"""POST /execution/triggers/events; GET /execution/events, …/head and …/pick; GET /execution/redeliveries."""

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
from headrace.store import Store
from headrace.store.log.log import LogPage, stored
from headrace.wire.base import rfc3339
from headrace.wire.custody.events import BatchStored, EventBatch, LogHead, LogNews
from headrace.wire.log import HEAD_HEADER, PICKED_HEADER
from headrace.wire.pipelines.plans import FindLeaders, FoundLeaders
from headrace.wire.pipelines.runs import PickEvents, Redeliveries

ARROW_STREAM = "application/vnd.apache.arrow.stream"
MOST_EVENTS = 200_000
MOST_PICKED = 10_000
MOST_WAIT = 20.0
PAGE: dict[str, Any] = {
    "description": "A page of the log",
    "content": {ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}}, "application/json": {"schema": {"type": "object"}}},
}

router = APIRouter(prefix="/execution", tags=["log"], route_class=WireRoute)


@router.post("/triggers/events", response_model=BatchStored)
async def append(batch: EventBatch, store: StoreOf, durable: DurableOf, caller: Triggerer) -> Response:
    """Store events and dead letters in one durable commit; batches that arrive together share it."""
    answered = await durable(store.log.append_later(caller.job_id, batch))
    return WireResponse(stored(answered))


@router.get("/events/head")
def head(store: StoreOf, caller: AnyJob) -> LogHead:
    """Return the log's first and last `seq`, and the api's clock."""
    store.jobs.check(caller.job_id)
    return store.log.head()


@router.get("/events/news")
async def news(
    store: StoreOf,
    caller: AnyJob,
    after: Annotated[int, Query(ge=0)] = 0,
    again: Annotated[int, Query(ge=0)] = 0,
    wait: Annotated[float, Query(ge=0, le=MOST_WAIT)] = 0.0,
) -> LogNews:
    """Return the last `seq` and the last redelivery: as soon as there is more than `after` or `again`, or after `wait` seconds."""
    await run_in_threadpool(store.jobs.check, caller.job_id)
    loop = asyncio.get_running_loop()
    until = loop.time() + wait
    with _commits(store, loop) as committed:
        while True:
            committed.clear()
            found = await run_in_threadpool(store.log.news)
            left = until - loop.time()
            if found.head > after or found.again > again or left <= 0:
                return found
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await committed.wait()


@contextmanager
def _commits(store: Store, loop: asyncio.AbstractEventLoop) -> Iterator[asyncio.Event]:
    """Give an event that is set after each commit."""
    committed = asyncio.Event()

    def tell() -> None:
        with suppress(RuntimeError):  # the loop has closed since: no task waits any more
            loop.call_soon_threadsafe(committed.set)

    forget = store.observe(tell)
    try:
        yield committed
    finally:
        forget()


@router.post("/events/pick", response_class=Response, responses={200: PAGE})
def pick(asked: PickEvents, store: StoreOf, caller: AnyJob) -> Response:
    """Return some events by their seqs, in order of `seq`, as an Arrow IPC stream, as far as the log has them.

    Where their payloads are large the answer has the first of them, and a header names the last seq. Request the rest again.
    """
    project = store.jobs.project(caller.job_id)
    # A range that ends before it begins has nothing, and takes nothing from what the others have.
    count = sum(max(0, last - first + 1) for first, last in asked.seqs)
    if count > MOST_PICKED:
        raise Refusal(422, "invalid", f"{count:,} events were requested at once.", hint=f"Ask for at most {MOST_PICKED:,}.")
    seqs = {seq for first, last in asked.seqs for seq in range(first, last + 1)}
    picked = store.log.pick(sorted(seqs), project)
    headers = {} if picked.to is None else {PICKED_HEADER: str(picked.to)}
    return Response(_as_arrow(picked.table), headers=headers, media_type=ARROW_STREAM)


@router.post("/events/leaders", response_model=FoundLeaders)
def leaders(wanted: FindLeaders, store: StoreOf, caller: AnyJob) -> Response:
    """Return the leader of each of some events, and the triggers of the job's project that had fired on it when it was stored."""
    return WireResponse(store.log.leaders(wanted.keys, store.jobs.project(caller.job_id)))


@router.get("/redeliveries")
def redeliveries(store: StoreOf, caller: AnyJob, after: Annotated[int, Query(ge=0)], to: Annotated[int, Query(ge=0)]) -> Redeliveries:
    """Return redeliveries with after < id <= to: late firings and redriven dead letters.

    Firings are those of the triggers of the job's project.
    """
    project = store.jobs.project(caller.job_id)
    return Redeliveries(redeliveries=store.log.redeliveries(after=after, to=to, project=project))


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
    """Return events with after < seq <= to in order of `seq`, as an Arrow IPC stream or as JSON; `scope` says for whom.

    `triggers` names those triggers of the job's project that fired on the event.
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
    """Return the page as JSON: keys in hexadecimal, moments in RFC 3339, and each payload as the text that it is."""
    rows = page.table.to_pylist()
    for row in rows:
        row["key"] = row["key"].hex()
        row["leader_key"] = None if row["leader_key"] is None else row["leader_key"].hex()
        row["occurred"] = rfc3339(row["occurred"])
        row["received"] = rfc3339(row["received"])
    return msgspec.json.encode({"head": page.head, "events": rows})
