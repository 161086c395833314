"""Routes that only older versions of the machine API have."""

from __future__ import annotations

from cadwyn import VersionedAPIRouter
from fastapi import Response

from headrace.api.access import StoreOf
from headrace.api.auth import Triggerer
from headrace.api.bodies import WireAnswer, WireRoute
from headrace.wire.custody import LaneMarks
from headrace.wire.triggers import TriggerFailure

router = VersionedAPIRouter(prefix="/execution", tags=["triggers"], route_class=WireRoute)


@router.only_exists_in_older_versions
@router.get("/streams/marks", response_model=LaneMarks)
def all_marks(stream: str, store: StoreOf, caller: Triggerer) -> Response:
    """Return how far the custody of each lane of a stream is recorded."""
    return WireAnswer(store.custody.marks(caller.job_id, stream, None))


@router.only_exists_in_older_versions
@router.post("/triggers/{trigger_id}/failure", status_code=204)
def failure_without_verdict(trigger_id: int, failed: TriggerFailure, store: StoreOf, caller: Triggerer) -> None:
    """Keep why a trigger failed."""
    store.triggers.failure(caller.job_id, trigger_id, failed)
