"""Admin routes of dead letters and of the audit."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from headrace.api.http.dependencies import StoreOf
from headrace.api.http.problems import Refusal
from headrace.api.routing import route
from headrace.store.queries.audit import audit
from headrace.store.queries.events import dead_letter_detail, dead_letter_page
from headrace.wire.calls import admin as calls
from headrace.wire.custody.dead_letters import DeadLetterActionResult, DeadLetterActions, DeadLetterSelection, DeadLetterState
from headrace.wire.custody.pipeline_dead_letters import (
    PipelineDeadLetter,
    PipelineDeadLetterAction,
    PipelineDeadLetterActionResult,
    PipelineDeadLetterList,
    PipelineDeadLetterSelection,
)
from headrace.wire.custody.receipts import Audit
from headrace.wire.status import status as wire

Limit = Annotated[int, Query(ge=1, le=1000, description="At most this many.")]


router = APIRouter(tags=["admin"])


@route(router, calls.GET_AUDIT)
def audit_streams(store: StoreOf, stream: str | None = None) -> Audit:
    """Return the audit of every stream, or of one."""
    with store.reading() as connection:
        return audit(connection, store.now(), stream)


@route(router, calls.REDRIVE_DEAD_LETTERS)
def redrive(body: DeadLetterSelection, store: StoreOf) -> DeadLetterActionResult:
    """Redrive up to 1,000 dead letters."""
    return store.dead_letters.redrive(body)


@route(router, calls.DISCARD_DEAD_LETTERS)
def discard(body: DeadLetterSelection, store: StoreOf) -> DeadLetterActionResult:
    """Discard up to 1,000 dead letters."""
    return store.dead_letters.discard(body)


@route(router, calls.LIST_PIPELINE_DEAD_LETTERS)
def of_pipelines(store: StoreOf, limit: Limit = 100) -> PipelineDeadLetterList:
    """Return the dead letters of pipelines, the newest first."""
    return store.pipeline_dead_letters.page(limit=limit)


@route(router, calls.GET_PIPELINE_DEAD_LETTER)
def one_of_pipelines(id: str, store: StoreOf) -> PipelineDeadLetter:
    """Return one dead letter of a pipeline with its error."""
    return store.pipeline_dead_letters.one(id)


@route(router, calls.ACT_ON_PIPELINE_DEAD_LETTERS)
def act_on_those_of_pipelines(
    action: PipelineDeadLetterAction, body: PipelineDeadLetterSelection, store: StoreOf
) -> PipelineDeadLetterActionResult:
    """Redrive or discard dead letters of pipelines."""
    return store.pipeline_dead_letters.act(action, body)


@route(router, calls.LIST_DEAD_LETTER_ACTIONS)
def actions(store: StoreOf, limit: Limit = 100) -> DeadLetterActions:
    """Return redrives and discards of dead letters, the newest first."""
    return store.dead_letters.actions(limit=limit)


@route(router, calls.LIST_DEAD_LETTERS)
def dead_letters(
    store: StoreOf, before: str | None = None, limit: Limit = 100, state: DeadLetterState | None = None
) -> wire.DeadLetterPage:
    """Return dead letters, the newest first. `before` is that of the previous page."""
    with store.reading() as connection:
        return dead_letter_page(connection, before=before, limit=limit, state=state)


@route(router, calls.GET_DEAD_LETTER)
def dead_letter(id: str, store: StoreOf) -> wire.DeadLetterDetail:
    """Return one dead letter with its raw text."""
    with store.reading() as connection:
        detail = dead_letter_detail(connection, id)
    if detail is None:
        raise Refusal(404, "not-found", f"No dead letter has the id {id}.")
    return detail
