"""Routes of connections and variables, for running jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from headrace.api.auth.authentication import AnyJob
from headrace.api.http.dependencies import StoreOf
from headrace.api.http.wire_route import WireRoute
from headrace.api.routing import route
from headrace.wire.calls import execution as calls
from headrace.wire.secrets import NAME, ConnectionValue, VariableValue

NO_STORE = {"Cache-Control": "no-store"}

router = APIRouter(tags=["secrets"], route_class=WireRoute)


@route(router, calls.GET_CONNECTION)
def connection(id: Annotated[str, Path(pattern=NAME)], response: Response, store: StoreOf, caller: AnyJob) -> ConnectionValue:
    """Return a connection with its secrets."""
    response.headers.update(NO_STORE)
    return store.secrets.connection(caller.job_id, id)


@route(router, calls.GET_VARIABLE)
def variable(key: Annotated[str, Path(pattern=NAME)], response: Response, store: StoreOf, caller: AnyJob) -> VariableValue:
    """Return the value of a variable."""
    response.headers.update(NO_STORE)
    return store.secrets.variable(caller.job_id, key)
