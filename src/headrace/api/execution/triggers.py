"""Routes of triggers and their leases."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Response

from headrace.api.auth.authentication import Triggerer
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.wire_route import JsonResponse, WireRoute
from headrace.api.routing import route
from headrace.wire.calls import execution as calls
from headrace.wire.control.triggers import (
    CleanupTriggers,
    FailureRecorded,
    FetchWorkloads,
    LoadTriggers,
    StreamFailure,
    StreamFailureRecorded,
    TriggerFailure,
    TriggersLoaded,
)

router = APIRouter(tags=["triggers"], route_class=WireRoute)


@route(router, calls.LOAD_TRIGGERS)
def load(body: LoadTriggers, store: StoreOf, caller: Triggerer) -> TriggersLoaded:
    """Acquire leases on triggers up to a capacity. Return all leases of the job, or the difference to a revision."""
    return store.triggers.load(caller.job_id, body)


@route(router, calls.GET_WORKLOADS)
def workloads(body: FetchWorkloads, store: StoreOf, caller: Triggerer) -> Response:
    """Return the workloads of the triggers that the job has leased."""
    return JsonResponse(msgspec.json.encode({"workloads": store.triggers.workloads(caller.job_id, body.trigger_ids)}))


@route(router, calls.CLEAN_UP_TRIGGERS)
def cleanup(body: CleanupTriggers, store: StoreOf, caller: Triggerer) -> None:
    """Release the leases on triggers that the job has stopped."""
    store.triggers.cleanup(caller.job_id, body)


@route(router, calls.REPORT_STREAM_FAILURE)
def stream_failure(failed: StreamFailure, store: StoreOf, caller: Triggerer) -> StreamFailureRecorded:
    """Record that a stream failed with its watches. Return when to open it again."""
    return store.triggers.stream_failure(caller.job_id, failed)


@route(router, calls.REPORT_FAILURE)
def failure(trigger_id: int, failed: TriggerFailure, store: StoreOf, caller: Triggerer) -> FailureRecorded:
    """Record that a trigger failed. Return when to start it again, or that it is parked."""
    return store.triggers.failure(caller.job_id, trigger_id, failed)
