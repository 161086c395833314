"""Dead letters and the audit, for people: what was given up on and what to do about it, and whether anything is missing."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from headrace.api.auth.authentication import admin
from headrace.api.http.problems import Refusal
from headrace.store import Store
from headrace.store.queries.audit import audit
from headrace.store.queries.events import dead_letter_detail, dead_letter_page
from headrace.wire.custody.dead_letters import ActOnDeadLetters, DeadLetterActions, DeadLettersActed, DeadLetterState
from headrace.wire.custody.pipeline_dead_letters import (
    ActOnPipelineLetters,
    PipelineLetter,
    PipelineLetterAction,
    PipelineLetters,
    PipelineLettersActed,
)
from headrace.wire.custody.receipts import Audit
from headrace.wire.status import status as wire

Limit = Annotated[int, Query(ge=1, le=1000, description="At most this many.")]


def router_for(store: Store) -> APIRouter:
    """Return the routes over `store`. Those that change something need the deployment key or a token of scope `admin` as their bearer."""
    router = APIRouter(tags=["admin"])
    _add_audit(router, store)
    _add_actions(router, store)
    _add_lists(router, store)
    return router


def _add_audit(router: APIRouter, store: Store) -> None:
    @router.get("/api/v1/audit")
    def books(stream: str | None = None) -> Audit:
        """Return the ledger of custody of every stream, or of one, and whether it balances."""
        with store.reading() as connection:
            return audit(connection, store.now(), stream)


def _add_actions(router: APIRouter, store: Store) -> None:
    @router.post("/api/v1/dead-letters/redrive", dependencies=[Depends(admin)])
    def redrive(asked: ActOnDeadLetters) -> DeadLettersActed:
        """Redrive the triggers of at most 1,000 dead letters."""
        return store.dead_letters.redrive(asked)

    @router.post("/api/v1/dead-letters/discard", dependencies=[Depends(admin)])
    def discard(asked: ActOnDeadLetters) -> DeadLettersActed:
        """Give these dead letters up for good; at most 1,000 a call."""
        return store.dead_letters.discard(asked)

    @router.get("/api/v1/pipeline-letters")
    def of_pipelines(limit: Limit = 100) -> PipelineLetters:
        """Return the dead letters of pipelines, the newest first: the events of runs that failed for the last time."""
        return store.pipeline_dead_letters.page(limit=limit)

    @router.get("/api/v1/pipeline-letters/{id:path}")
    def one_of_pipelines(id: str) -> PipelineLetter:
        """Return one dead letter of a pipeline, with its whole error."""
        return store.pipeline_dead_letters.one(id)

    @router.post("/api/v1/pipeline-letters/{action}", dependencies=[Depends(admin)])
    def act_on_those_of_pipelines(action: PipelineLetterAction, asked: ActOnPipelineLetters) -> PipelineLettersActed:
        """Redrive the events of these dead letters, or discard them."""
        return store.pipeline_dead_letters.act(action, asked)

    @router.get("/api/v1/dead-letter-actions")
    def actions(limit: Limit = 100) -> DeadLetterActions:
        """Return who redrove or discarded what, and when, the newest first."""
        return store.dead_letters.actions(limit=limit)


def _add_lists(router: APIRouter, store: Store) -> None:
    @router.get("/api/v1/dead-letters")
    def dead_letters(before: str | None = None, limit: Limit = 100, state: DeadLetterState | None = None) -> wire.DeadLetterPage:
        """Return dead letters, the newest first; `before` is the id of the last one already seen."""
        with store.reading() as connection:
            return dead_letter_page(connection, before=before, limit=limit, state=state)

    @router.get("/api/v1/dead-letters/{id:path}")
    def dead_letter(id: str) -> wire.DeadLetterDetail:
        """Return one dead letter with the text that came."""
        with store.reading() as connection:
            found = dead_letter_detail(connection, id)
        if found is None:
            raise Refusal(404, "not-found", f"No dead letter has the id {id}.")
        return found
