"""Admin routes of triggerers and single triggers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from headrace.api.http.dependencies import StoreOf
from headrace.api.http.problems import Refusal
from headrace.api.routing import route
from headrace.store.queries.status import triggerer_list
from headrace.store.queries.triggers import firing_explanation, trigger_detail
from headrace.wire.calls import admin as calls
from headrace.wire.status.triggerers import BacklogDropped, FiringExplanation, SetDesiredState, TriggerDetail, TriggererList

INT64 = 2**63

Named = Annotated[str, Query(min_length=1, max_length=1000, pattern=r"^[^\x00]*$")]


router = APIRouter(tags=["admin"])


@route(router, calls.LIST_TRIGGERERS)
def triggerers(store: StoreOf) -> TriggererList:
    """Return the running triggerers, then the last ended ones."""
    with store.reading() as connection:
        return TriggererList(triggerers=triggerer_list(connection, store.now(), store.liveness))


@route(router, calls.SET_DESIRED_STATE)
def set_desired_state(job_id: int, body: SetDesiredState, store: StoreOf) -> None:
    """Set the desired state of a triggerer, which gets it with its next heartbeat."""
    store.jobs.set_desired_state(_number(job_id), body.desired_state)


@route(router, calls.GET_TRIGGER)
def trigger(trigger_id: int, store: StoreOf) -> TriggerDetail:
    """Return one trigger with its last failure, and the pattern of a watch."""
    with store.reading() as connection:
        detail = trigger_detail(connection, store.keyring, _number(trigger_id), store.now())
    if detail is None:
        raise Refusal(404, "not-found", f"No trigger has the id {trigger_id}.")
    return detail


@route(router, calls.EXPLAIN_FIRING)
def explanation(trigger: Named, event: Named, store: StoreOf, by_id: bool = False, project: str | None = None) -> FiringExplanation:
    """Return why a trigger fired on an event of the log or did not.

    `event` is a `seq` or an id, and only an id with `by_id`. Name the `project` if several projects have the trigger.
    """
    with store.reading() as connection:
        return firing_explanation(connection, store.keyring, trigger=trigger, event=event, by_id=by_id, project=project)


@route(router, calls.RESUME_TRIGGER)
def resume(trigger_id: int, store: StoreOf) -> None:
    """Start a trigger that is parked or waits after a failure."""
    store.triggers.resume(_number(trigger_id))


@route(router, calls.DROP_BACKLOG)
def drop_backlog(trigger_id: int, store: StoreOf) -> BacklogDropped:
    """Drop the backlog of a trigger. The audit counts it as dropped."""
    return BacklogDropped(dropped=store.backlog.drop(_number(trigger_id)))


def _number(id: int) -> int:
    """Return an id that the database can look up: -1 for a number of more than 64 bits."""
    return id if -INT64 <= id < INT64 else -1
