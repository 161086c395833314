"""PUT /execution/projects/{name}; POST /execution/declarations."""

from __future__ import annotations

from fastapi import APIRouter

from headrace.api.auth.authentication import AnyJob
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.wire_route import WireRoute
from headrace.wire.control.triggers import DeclareProject, ProjectDeclared, StageTriggers

router = APIRouter(prefix="/execution", tags=["projects"], route_class=WireRoute)


@router.put("/projects/{name:path}")
def declare(name: str, declared: DeclareProject, store: StoreOf, caller: AnyJob) -> ProjectDeclared:
    """Declare the job's project. Triggers and pipelines that it does not name are removed."""
    return store.projects.declare(caller.job_id, name, declared)


@router.post("/declarations", status_code=204)
def stage(page: StageTriggers, store: StoreOf, caller: AnyJob) -> None:
    """Keep a page of a declaration of the job's project; it is declared once all of it is there."""
    store.projects.stage(caller.job_id, page)
