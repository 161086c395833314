"""Routes of jobs."""

from __future__ import annotations

from fastapi import APIRouter

from headrace.api.auth.authentication import AnyJob, TokensOf
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.wire_route import WireRoute
from headrace.api.routing import route
from headrace.wire.calls import execution as calls
from headrace.wire.control.jobs import CompleteJob, Heartbeat, HeartbeatAnswer, JobRegistered, RegisterJob

HEARTBEAT_SECONDS = 1.0

router = APIRouter(tags=["jobs"], route_class=WireRoute)


@route(router, calls.REGISTER_JOB)
def register(job: RegisterJob, store: StoreOf, tokens: TokensOf) -> JobRegistered:
    """Register a process and return its job, the job's token and the interval of heartbeats."""
    registered = store.jobs.register(job)
    token = tokens.token(registered.id, registered.kind)
    return JobRegistered(job_id=registered.id, token=token, heartbeat=HEARTBEAT_SECONDS)


@route(router, calls.HEARTBEAT)
def heartbeat(job_id: int, beat: Heartbeat, store: StoreOf, caller: AnyJob, tokens: TokensOf) -> HeartbeatAnswer:
    """Report that the job is alive. Return the desired state, the leases, and the next token in time."""
    caller.must_own(job_id)
    answer = store.jobs.heartbeat(job_id, beat)
    token = tokens.refreshed(caller)
    return answer if token is None else answer.model_copy(update={"token": token})


@route(router, calls.COMPLETE_JOB)
def complete(job_id: int, end: CompleteJob, store: StoreOf, caller: AnyJob) -> None:
    """End the job and release its leases."""
    caller.must_own(job_id)
    store.jobs.complete(job_id, end)
