"""What the API knows of a pipeline scope's runs, in pages, for `headrace audit --tables`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from headrace.api.http.dependencies import StoreOf
from headrace.api.http.problems import Refusal
from headrace.api.http.wire_route import WireResponse
from headrace.store.db.meta import log_id
from headrace.store.pipelines.plans import open_runs_page, state_page
from headrace.store.queries.scope_audit import ledger_firings, ledger_letters, ledger_runs, scope_ledger
from headrace.wire.pipelines import scope_audit as wire
from headrace.wire.pipelines.plans import OpenRuns, ScopeState

MAX_NUMBER = 2**63 - 1

Number = Annotated[int, Query(ge=0, le=MAX_NUMBER)]

router = APIRouter(prefix="/api/v1/scopes", tags=["admin"])


@router.get("/{scope:path}/ledger")
def ledger(scope: str, store: StoreOf) -> wire.ScopeLedger:
    """Return how far a pipeline's scope is, and how many events are waiting, held and in open runs."""
    with store.reading() as connection:
        found = scope_ledger(connection, log_id(store.instance), scope, store.now())
    if found is None:
        raise Refusal(404, "not-found", f"No pipeline has a scope '{scope}'.", hint="See: headrace scopes list")
    return found


@router.get("/{scope:path}/ledger/state", response_model=ScopeState)
def state(scope: str, incarnation: str, store: StoreOf, after: str = "") -> Response:
    """Return the state of an incarnation of a scope by key, at most about 8 MiB, as its driver wrote it."""
    del scope
    with store.reading() as connection:
        return WireResponse(state_page(connection, incarnation, after))


@router.get("/{scope:path}/ledger/open", response_model=OpenRuns)
def open_runs(scope: str, incarnation: str, store: StoreOf, batch: Number = 0, number: Number = 0) -> Response:
    """Return the open runs of an incarnation of a scope after (batch, number), at most about 8 MiB. Ask on until there are none."""
    del scope
    with store.reading() as connection:
        return WireResponse(open_runs_page(connection, incarnation, batch, number))


@router.get("/{scope:path}/ledger/runs", response_model=wire.LedgerRuns)
def runs(scope: str, store: StoreOf, after: str = "") -> Response:
    """Return the scope's runs that succeeded with the events of each, by id, at most about 8 MiB."""
    with store.reading() as connection:
        return WireResponse(ledger_runs(connection, scope, after))


@router.get("/{scope:path}/ledger/letters", response_model=wire.LedgerLetters)
def letters(scope: str, store: StoreOf, after: str = "") -> Response:
    """Return the scope's dead letters with the events of each, by id, at most about 8 MiB."""
    with store.reading() as connection:
        return WireResponse(ledger_letters(connection, scope, after))


@router.get("/{scope:path}/ledger/firings", response_model=wire.LedgerFirings)
def firings(scope: str, store: StoreOf, to: Number, again: Number, after: Number = 0, trigger: Number = MAX_NUMBER) -> Response:
    """Return firings of the project's triggers after (event, trigger), up to the event `to` and the redelivery `again`."""
    with store.reading() as connection:
        return WireResponse(ledger_firings(connection, scope, to, again, (after, trigger)))
