"""PUT /execution/projects/{name}."""

from __future__ import annotations

from fastapi import APIRouter

from headrace.api.access import StoreOf
from headrace.api.auth import AnyJob
from headrace.api.bodies import WireRoute
from headrace.wire.triggers import DeclareProject, ProjectDeclared

router = APIRouter(prefix="/execution/projects", tags=["projects"], route_class=WireRoute)


@router.put("/{name:path}")
def declare(name: str, declared: DeclareProject, store: StoreOf, caller: AnyJob) -> ProjectDeclared:
    """Declare the whole of the job's project; what is no longer named is removed."""
    return store.projects.declare(caller.job_id, name, declared)
