"""Routes from the table of calls: address, models and access come from a call, the body is the decorated function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from headrace.api.auth import authentication
from headrace.wire.base import WireModel
from headrace.wire.calls.call import NOTHING, Call, Caller

F = TypeVar("F", bound=Callable[..., Any])

JOBS: Final[dict[Caller, Callable[..., Any]]] = {
    "any job": authentication.caller,
    "triggerer": authentication.triggerer,
    "pipeline": authentication.pipeline,
    "worker": authentication.worker,
}
"""The dependency that a route of these calls declares itself, because it acts for the job."""
OPERATORS: Final[dict[Caller, Callable[..., Any]]] = {"deployment key": authentication.deployment, "admin": authentication.admin}
"""The dependency that a route of these calls gets. The middleware checks readers."""


def route(router: APIRouter, call: Call[Any, Any], **options: Any) -> Callable[[F], F]:
    """Return a decorator that serves `call` with a function; `options` are FastAPI's.

    Raises:
        TypeError: The function does not take the body of the call, or accepts another caller.
    """

    def add(serve: F) -> F:
        operator = OPERATORS.get(call.caller)
        route_options = {
            "methods": [call.method],
            "status_code": 204 if call.response is NOTHING else 200,
            "response_model": call.response if issubclass(call.response, WireModel) else None,
            "dependencies": [*([Depends(operator)] if operator else []), *options.pop("dependencies", [])],
        }
        router.add_api_route(call.path, serve, **route_options | options)
        _check(router.routes[-1], call)
        return serve

    return add


def check_complete(routers: Iterable[APIRouter], calls: Iterable[Call[Any, Any]]) -> None:
    """Check that each call has one route, and each route is that of a call. Raises `TypeError`."""
    routes = [one for router in routers for one in router.routes if isinstance(one, APIRoute)]
    served = Counter(f"{method} {one.path}" for one in routes for method in one.methods or ())
    listed = Counter(f"{call.method} {call.path}" for call in calls)
    if served != listed:
        raise TypeError(f"The routes differ from the table of calls. Missing: {[*listed - served]}. Unknown: {[*served - listed]}.")


def _check(added: BaseRoute, call: Call[Any, Any]) -> None:
    if not isinstance(added, APIRoute):
        raise TypeError(f"{call.name}: not a route of FastAPI.")
    body = added.body_field.field_info.annotation if added.body_field else NOTHING
    if body is not call.request:
        raise TypeError(f"{call.name}: the route takes {body}, the call has {call.request}.")
    known = {*JOBS.values(), *OPERATORS.values()}
    accepted = {each.call for each in added.dependant.dependencies if each.call in known}
    expected = {guard for guard in (JOBS.get(call.caller), OPERATORS.get(call.caller)) if guard}
    if accepted != expected:
        raise TypeError(f"{call.name}: the route accepts {accepted}, the call {call.caller}.")
