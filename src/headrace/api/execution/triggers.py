"""POST /execution/triggers/load, …/workloads, …/failures, …/{id}/failure, …/cleanup."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Response

from headrace.api.auth.authentication import Triggerer
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.wire_route import JsonResponse, WireRoute
from headrace.wire.control.triggers import (
    CleanupTriggers,
    FailureRecorded,
    FetchWorkloads,
    LoadTriggers,
    StreamFailure,
    StreamFailureRecorded,
    TriggerFailure,
    TriggersLoaded,
    Workloads,
)

router = APIRouter(prefix="/execution/triggers", tags=["triggers"], route_class=WireRoute)


@router.post("/load")
def load(asked: LoadTriggers, store: StoreOf, caller: Triggerer) -> TriggersLoaded:
    """Claim triggers up to a capacity; answers with every lease that the job now holds."""
    return store.triggers.load(caller.job_id, asked)


@router.post("/workloads", response_model=Workloads)
def workloads(asked: FetchWorkloads, store: StoreOf, caller: Triggerer) -> Response:
    """Return what is needed to run those of the triggers that the job holds."""
    return JsonResponse(msgspec.json.encode({"workloads": store.triggers.workloads(caller.job_id, asked.trigger_ids)}))


@router.post("/cleanup", status_code=204)
def cleanup(gone: CleanupTriggers, store: StoreOf, caller: Triggerer) -> None:
    """Give up leases on triggers that the job has stopped, so that others may have them."""
    store.triggers.cleanup(caller.job_id, gone)


@router.post("/failures")
def stream_failure(failed: StreamFailure, store: StoreOf, caller: Triggerer) -> StreamFailureRecorded:
    """Keep why the watches of a stream failed with it; learn when to open it again."""
    return store.triggers.stream_failure(caller.job_id, failed)


@router.post("/{trigger_id}/failure")
def failure(trigger_id: int, failed: TriggerFailure, store: StoreOf, caller: Triggerer) -> FailureRecorded:
    """Keep why a trigger failed; learn when to start it again, or that it is parked."""
    return store.triggers.failure(caller.job_id, trigger_id, failed)
