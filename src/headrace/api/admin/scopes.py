"""Admin routes of scopes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from headrace.api.http.dependencies import StoreOf
from headrace.api.http.problems import Refusal
from headrace.api.routing import route
from headrace.core.values.moments import moment
from headrace.store.db.meta import log_end
from headrace.store.queries.ordering_scopes import waits_in_sql
from headrace.store.queries.scopes import waits_of_pipeline
from headrace.store.queries.status import scope_list
from headrace.wire.calls import admin as calls
from headrace.wire.pipelines import scopes as wire

SEQ_RANGE = 2**63 - 1

router = APIRouter(tags=["admin"])


@route(router, calls.LIST_SCOPES)
def scopes(store: StoreOf) -> wire.ScopeList:
    """Return the scopes of pipelines, then those of webhooks and task runs."""
    with store.reading() as connection:
        return wire.ScopeList(now=moment(store.now()), scopes=scope_list(connection, log_end(connection)))


@route(router, calls.REMOVE_SCOPE)
def remove_scope(scope: str, store: StoreOf) -> None:
    """Delete a scope of a pipeline. The pipeline must not run. The log retains no events for the scope from now on."""
    if not store.scopes.remove(scope):
        raise _no_scope(scope, "A webhook's goes with: headrace webhooks remove")


@route(router, calls.RESET_SCOPE)
def reset_scope(scope: str, reset: wire.ResetScope, store: StoreOf) -> wire.ScopeReset:
    """Reset a scope of a pipeline: its open runs and waiting events are dropped. The pipeline must not run."""
    done = store.scopes.reset(scope, reset.begin)
    if done is None:
        raise _no_scope(scope, "Those of webhooks and task runs cannot be reset.")
    return done


@route(router, calls.LIST_WAITING_EVENTS)
def waiting(
    scope: str,
    store: StoreOf,
    after: Annotated[int, Query(ge=0, le=SEQ_RANGE)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="At most this many.")] = 100,
) -> wire.WaitPage:
    """Return the waiting events of a scope with their leaders, in order of `seq`, from the first after `after`."""
    now = store.now()
    with store.reading() as connection:
        page = waits_of_pipeline(connection, scope, now, after=after, limit=limit) or waits_in_sql(
            connection, scope, now, after=after, limit=limit
        )
    if page is None:
        raise Refusal(404, "not-found", f"There is no scope '{scope}'.", hint="See what there is with: headrace status")
    return page


def _no_scope(scope: str, hint: str) -> Refusal:
    return Refusal(404, "not-found", f"No pipeline has a scope '{scope}'.", hint=f"See: headrace scopes list. {hint}")
