"""Triggerers and parked triggers, for people: who runs what, and with the deployment key, who is to stop and what is to start again."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from headrace.api.auth.authentication import admin
from headrace.api.http.problems import Refusal
from headrace.store import Store
from headrace.store.queries.status import triggerer_list
from headrace.store.queries.triggers import trigger_detail
from headrace.wire.status.triggerers import BacklogDropped, TriggerDetail, TriggererList, WantJob

INT64 = 2**63


def router_for(store: Store) -> APIRouter:
    """Return the routes over `store`. Those that change something need the deployment key as their bearer token."""
    router = APIRouter(prefix="/api/v1", tags=["admin"])

    @router.get("/triggerers")
    def triggerers() -> TriggererList:
        """Return the running triggerers, then the last ended ones."""
        with store.reading() as connection:
            return TriggererList(triggerers=triggerer_list(connection, store.now(), store.liveness))

    @router.post("/triggerers/{job_id}/wanted", status_code=204, dependencies=[Depends(admin)])
    def want(job_id: int, asked: WantJob) -> None:
        """Say what is wanted of a triggerer; it learns of it with its next heartbeat."""
        store.jobs.want(_number(job_id), asked.wanted)

    @router.get("/triggers/{trigger_id}")
    def trigger(trigger_id: int) -> TriggerDetail:
        """Return one trigger with why it failed."""
        with store.reading() as connection:
            found = trigger_detail(connection, _number(trigger_id), store.now())
        if found is None:
            raise Refusal(404, "not-found", f"No trigger has the id {trigger_id}.")
        return found

    @router.post("/triggers/{trigger_id}/resume", status_code=204, dependencies=[Depends(admin)])
    def resume(trigger_id: int) -> None:
        """Start a trigger that is parked or waits after a failure."""
        store.triggers.resume(_number(trigger_id))

    @router.post("/triggers/{trigger_id}/backlog/drop", dependencies=[Depends(admin)])
    def drop_backlog(trigger_id: int) -> BacklogDropped:
        """Drop all that is kept for a trigger; the audit counts it as dropped."""
        return BacklogDropped(dropped=store.backlog.drop(_number(trigger_id)))

    return router


def _number(id: int) -> int:
    """Return an id that the database can look for; what is beyond its numbers is nothing's."""
    return id if -INT64 <= id < INT64 else -1
