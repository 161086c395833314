"""Routes that only older versions of the machine API have."""

from __future__ import annotations

from cadwyn import VersionedAPIRouter
from fastapi import Response

from headrace.api.auth.authentication import AnyJob, Pipeline, Triggerer
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.problems import Refusal
from headrace.api.http.wire_route import WireAnswer, WireRoute
from headrace.wire.control.triggers import TriggerFailure
from headrace.wire.custody.events import Cursor
from headrace.wire.custody.receipts import LaneMarks

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


@router.only_exists_in_older_versions
@router.get("/scopes/{scope:path}/cursor", response_model=Cursor)
def cursor(scope: str, caller: AnyJob) -> Response:
    """Refuse: a driver of this version has to end before it writes rows."""
    del caller
    raise _retired(scope)


@router.only_exists_in_older_versions
@router.post("/scopes/{scope:path}/cursor", status_code=204)
def commit(scope: str, committed: Cursor, caller: Pipeline) -> None:
    """Refuse: the rows of this batch were written without a plan."""
    del committed, caller
    raise _retired(scope)


def _retired(scope: str) -> Refusal:
    detail = f"This version of the driver cannot run the scope '{scope}': batches are now planned in the API."
    return Refusal(410, "retired", detail, hint="Upgrade Headrace on the machine of the pipeline to the version of the API.")
