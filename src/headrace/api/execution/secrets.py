"""GET /execution/connections/{id} and /execution/variables/{key}: secrets for a running job only."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from headrace.api.auth.authentication import AnyJob
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.wire_route import WireRoute
from headrace.wire.secrets import NAME, ConnectionValue, VariableValue

NOT_KEPT = {"Cache-Control": "no-store"}

router = APIRouter(prefix="/execution", tags=["secrets"], route_class=WireRoute)


@router.get("/connections/{id}")
def connection(id: Annotated[str, Path(pattern=NAME)], response: Response, store: StoreOf, caller: AnyJob) -> ConnectionValue:
    """Return a connection in full."""
    response.headers.update(NOT_KEPT)
    return store.secrets.connection(caller.job_id, id)


@router.get("/variables/{key}")
def variable(key: Annotated[str, Path(pattern=NAME)], response: Response, store: StoreOf, caller: AnyJob) -> VariableValue:
    """Return a variable."""
    response.headers.update(NOT_KEPT)
    return store.secrets.variable(caller.job_id, key)
