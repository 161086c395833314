"""POST /execution/jobs, …/heartbeat, …/complete."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from headrace.api.auth.authentication import AnyJob, TokensOf, deployment
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.wire_route import WireRoute
from headrace.wire.control.jobs import CompleteJob, Heartbeat, HeartbeatAnswer, JobRegistered, RegisterJob

HEARTBEAT_SECONDS = 1.0

router = APIRouter(prefix="/execution/jobs", tags=["jobs"], route_class=WireRoute)


@router.post("", dependencies=[Depends(deployment)])
def register(job: RegisterJob, store: StoreOf, tokens: TokensOf) -> JobRegistered:
    """Register a process; needs the deployment key."""
    registered = store.jobs.register(job)
    token = tokens.token(registered.id, registered.kind)
    return JobRegistered(job_id=registered.id, token=token, heartbeat=HEARTBEAT_SECONDS)


@router.post("/{job_id}/heartbeat")
def heartbeat(job_id: int, beat: Heartbeat, store: StoreOf, caller: AnyJob, tokens: TokensOf) -> HeartbeatAnswer:
    """Say that the job lives; learn what is wanted of it, and in time get the next token."""
    caller.must_own(job_id)
    answer = store.jobs.heartbeat(job_id, beat)
    token = tokens.refreshed(caller)
    return answer if token is None else answer.model_copy(update={"token": token})


@router.post("/{job_id}/complete", status_code=204)
def complete(job_id: int, end: CompleteJob, store: StoreOf, caller: AnyJob) -> None:
    """End the job and release its leases; the first end wins."""
    caller.must_own(job_id)
    store.jobs.complete(job_id, end)
