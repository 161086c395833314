"""Routes that only older versions of the machine API have."""

from __future__ import annotations

from cadwyn import VersionedAPIRouter

from headrace.api.access import StoreOf
from headrace.api.auth import Triggerer
from headrace.api.bodies import WireRoute
from headrace.wire.triggers import TriggerFailure

router = VersionedAPIRouter(prefix="/execution/triggers", tags=["triggers"], route_class=WireRoute)


@router.only_exists_in_older_versions
@router.post("/{trigger_id}/failure", status_code=204)
def failure_without_verdict(trigger_id: int, failed: TriggerFailure, store: StoreOf, caller: Triggerer) -> None:
    """Keep why a trigger failed."""
    store.triggers.failure(caller.job_id, trigger_id, failed)
