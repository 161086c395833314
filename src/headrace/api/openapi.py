"""The OpenAPI documents of the execution API and of the admin API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter
from starlette.routing import BaseRoute

from headrace.api.admin.live_status import VERSION
from headrace.api.execution.routers import ROUTERS
from headrace.api.middleware.version import DESCRIPTION_PATH
from headrace.wire.base import API_VERSION, VERSION_HEADER
from headrace.wire.calls.admin import ADMIN_CALLS
from headrace.wire.calls.call import Call
from headrace.wire.calls.execution import EXECUTION_CALLS
from headrace.wire.problem import PROBLEM_JSON, Problem

ADMIN_DESCRIPTION_PATH = "/api/openapi.json"
METHODS = ("get", "put", "post", "delete", "patch")
_PROBLEM = {
    "description": "The problem, and how to solve it",
    "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_BEARER = {"type": "http", "scheme": "bearer", "description": "The deployment key, or the token of a job."}


def router(admin_routes: Sequence[BaseRoute]) -> APIRouter:
    """Return the routes of the documents: the execution API at `DESCRIPTION_PATH`, the admin API at `ADMIN_DESCRIPTION_PATH`."""
    documents = APIRouter(include_in_schema=False)

    @documents.get(DESCRIPTION_PATH)
    def describe() -> JSONResponse:
        """Return the execution API's description."""
        return JSONResponse(execution_api())

    @documents.get(ADMIN_DESCRIPTION_PATH)
    def describe_admin() -> JSONResponse:
        """Return the admin API's description."""
        if not admin:
            admin.update(admin_api(admin_routes))
        return JSONResponse(admin)

    admin: dict[str, Any] = {}
    return documents


def admin_api(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """Return the OpenAPI document of the admin API with these routes."""
    return _completed(get_openapi(title="Headrace admin API", version=VERSION, routes=routes), ADMIN_CALLS)


@cache
def execution_api() -> dict[str, Any]:
    """Return the OpenAPI document of the execution API."""
    routes = [route for router in ROUTERS for route in router.routes]
    document = get_openapi(title="Headrace's execution API", version=API_VERSION, routes=routes)
    header = {"name": VERSION_HEADER, "in": "header", "required": True, "schema": {"type": "string", "const": API_VERSION}}
    for operation in _operations(document):
        operation.setdefault("parameters", []).append(header)
    return _completed(document, EXECUTION_CALLS)


def _completed(document: dict[str, Any], calls: Iterable[Call[Any, Any]]) -> dict[str, Any]:
    """Return the document with the problems that every call may return, and the accepted credentials."""
    parts = document.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    schemas["Problem"] = TypeAdapter(Problem).json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    parts["securitySchemes"] = {"bearer": _BEARER}
    for operation in _operations(document):
        answers = operation["responses"]
        answers.pop("422", None)
        answers |= {"4XX": _PROBLEM, "5XX": _PROBLEM}
    for call in calls:
        without: list[dict[str, list[str]]] = [{}] if call.caller in ("reader", "anyone") else []
        document["paths"][call.template][call.method.lower()]["security"] = [{"bearer": []}, *without]
    return document


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document["paths"].values():
        for method in METHODS:
            if method in path:
                yield path[method]
