"""Admin routes of a scope's ledger, which `headrace audit --tables` reads in pages."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from headrace.api.http.dependencies import StoreOf
from headrace.api.http.problems import Refusal
from headrace.api.http.wire_route import WireResponse
from headrace.api.routing import route
from headrace.store.db.meta import log_id
from headrace.store.pipelines.plans import open_runs_page, state_page
from headrace.store.queries.scope_audit import ledger_dead_letters, ledger_firings, ledger_runs, scope_ledger
from headrace.wire.calls import admin as calls
from headrace.wire.pipelines import scope_audit as wire

MAX_NUMBER = 2**63 - 1

Number = Annotated[int, Query(ge=0, le=MAX_NUMBER)]

router = APIRouter(tags=["admin"])


@route(router, calls.GET_SCOPE_LEDGER)
def ledger(scope: str, store: StoreOf) -> wire.ScopeLedger:
    """Return the position of a pipeline's scope, and the numbers of its waiting and held events and of those in open runs."""
    with store.reading() as connection:
        snapshot = scope_ledger(connection, log_id(store.instance), scope, store.now())
    if snapshot is None:
        raise Refusal(404, "not-found", f"No pipeline has a scope '{scope}'.", hint="See: headrace scopes list")
    return snapshot


@route(router, calls.GET_LEDGER_STATE)
def state(scope: str, incarnation: str, store: StoreOf, after: str = "") -> Response:
    """Return the state of an incarnation of a scope by key, about 8 MiB, as its driver wrote it."""
    del scope
    with store.reading() as connection:
        return WireResponse(state_page(connection, incarnation, after))


@route(router, calls.GET_LEDGER_OPEN_RUNS)
def open_runs(scope: str, incarnation: str, store: StoreOf, batch: Number = 0, number: Number = 0) -> Response:
    """Return the open runs of an incarnation of a scope after (batch, number), about 8 MiB. An empty page is the end."""
    del scope
    with store.reading() as connection:
        return WireResponse(open_runs_page(connection, incarnation, batch, number))


@route(router, calls.GET_LEDGER_RUNS)
def runs(scope: str, store: StoreOf, after: str = "") -> Response:
    """Return the scope's succeeded runs with their events, by id, about 8 MiB."""
    with store.reading() as connection:
        return WireResponse(ledger_runs(connection, scope, after))


@route(router, calls.GET_LEDGER_DEAD_LETTERS)
def dead_letters(scope: str, store: StoreOf, after: str = "") -> Response:
    """Return the scope's dead letters with their events, by id, about 8 MiB."""
    with store.reading() as connection:
        return WireResponse(ledger_dead_letters(connection, scope, after))


@route(router, calls.GET_LEDGER_FIRINGS)
def firings(
    scope: str, store: StoreOf, to: Number, last_redelivery_id: Number, after: Number = 0, trigger: Number = MAX_NUMBER
) -> Response:
    """Return firings of the project's triggers after (event, trigger), up to the event `to` and the redelivery `last_redelivery_id`."""
    with store.reading() as connection:
        return WireResponse(ledger_firings(connection, scope, to, last_redelivery_id, (after, trigger)))
