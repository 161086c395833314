"""Scopes for people: how far each consumer of the log is, and what waits in it and for whom; remove one, or reset it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from headrace.api.auth.authentication import admin
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.problems import Refusal
from headrace.core.values.moments import moment
from headrace.store.db.meta import log_head
from headrace.store.queries.ordering_scopes import waits_in_sql
from headrace.store.queries.scopes import waits_of_pipeline
from headrace.store.queries.status import scope_list
from headrace.wire.pipelines import scopes as wire

SEQ_RANGE = 2**63 - 1

router = APIRouter(prefix="/api/v1/scopes", tags=["admin"])


@router.get("")
def scopes(store: StoreOf) -> wire.ScopeList:
    """Return the scopes with what their orderings did: those of pipelines, then those of webhooks and task runs."""
    with store.reading() as connection:
        return wire.ScopeList(now=moment(store.now()), scopes=scope_list(connection, log_head(connection)))


@router.delete("/{scope:path}", status_code=204, dependencies=[Depends(admin)])
def remove_scope(scope: str, store: StoreOf) -> None:
    """Delete a scope. The log retains no events for it any more. Its pipeline must not run."""
    if not store.scopes.remove(scope):
        raise _no_scope(scope, "A webhook's goes with: headrace webhooks remove")


@router.post("/{scope:path}/reset", dependencies=[Depends(admin)])
def reset_scope(scope: str, reset: wire.ResetScope, store: StoreOf) -> wire.ScopeReset:
    """Reset a pipeline's scope: its open runs and all that waits are given up. Its pipeline must not run."""
    done = store.scopes.reset(scope, reset.begin)
    if done is None:
        raise _no_scope(scope, "Those of webhooks and task runs cannot be reset.")
    return done


@router.get("/{scope:path}/waiting")
def waiting(
    scope: str,
    store: StoreOf,
    after: Annotated[int, Query(ge=0, le=SEQ_RANGE)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="At most this many.")] = 100,
) -> wire.WaitPage:
    """Return which events wait in a scope and for whom, in the order in which they came; `after` is the seq of the last one seen."""
    now = store.now()
    with store.reading() as connection:
        found = waits_of_pipeline(connection, scope, now, after=after, limit=limit) or waits_in_sql(
            connection, scope, now, after=after, limit=limit
        )
    if found is None:
        raise Refusal(404, "not-found", f"There is no scope '{scope}'.", hint="See what there is with: headrace status")
    return found


def _no_scope(scope: str, hint: str) -> Refusal:
    return Refusal(404, "not-found", f"No pipeline has a scope '{scope}'.", hint=f"See: headrace scopes list. {hint}")
