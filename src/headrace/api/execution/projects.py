"""Routes of projects."""

from __future__ import annotations

from fastapi import APIRouter

from headrace.api.auth.authentication import AnyJob
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.wire_route import WireRoute
from headrace.api.routing import route
from headrace.wire.calls import execution as calls
from headrace.wire.control.triggers import DeclareProject, ProjectDeclared, StageTriggers

router = APIRouter(tags=["projects"], route_class=WireRoute)


@route(router, calls.DECLARE_PROJECT)
def declare(name: str, declared: DeclareProject, store: StoreOf, caller: AnyJob) -> ProjectDeclared:
    """Declare the job's project. Triggers and pipelines that it does not name are removed."""
    return store.projects.declare(caller.job_id, name, declared)


@route(router, calls.STAGE_TRIGGERS)
def stage(page: StageTriggers, store: StoreOf, caller: AnyJob) -> None:
    """Store a page of a declaration of the job's project. It takes effect with the request that declares the project."""
    store.projects.stage(caller.job_id, page)
