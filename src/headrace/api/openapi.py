"""What OpenAPI says of the execution API and of the admin API."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter

from headrace.api.admin.live_status import VERSION
from headrace.api.execution.routers import ROUTERS
from headrace.api.middleware.version import DESCRIPTION_PATH
from headrace.wire.base import API_VERSION, VERSION_HEADER
from headrace.wire.problem import PROBLEM_JSON, Problem

ADMIN_DESCRIPTION_PATH = "/api/openapi.json"
METHODS = ("get", "put", "post", "delete", "patch")
_PROBLEM = {
    "description": "The problem, and how to solve it",
    "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_BEARER = {"type": "http", "scheme": "bearer", "description": "The deployment key, or the token of a job."}


def install(app: FastAPI) -> None:
    """Serve the descriptions: the execution API at `DESCRIPTION_PATH`, the admin API at `ADMIN_DESCRIPTION_PATH`."""
    router = APIRouter(include_in_schema=False)

    @router.get(DESCRIPTION_PATH)
    def describe() -> JSONResponse:
        """Return the execution API's description."""
        return JSONResponse(execution_api())

    @router.get(ADMIN_DESCRIPTION_PATH)
    def describe_admin() -> JSONResponse:
        """Return the admin API's description."""
        if not admin:
            admin.update(_completed(get_openapi(title="Headrace admin API", version=VERSION, routes=app.routes)))
        return JSONResponse(admin)

    admin: dict[str, Any] = {}
    app.include_router(router)


@cache
def execution_api() -> dict[str, Any]:
    """Return the OpenAPI document of the execution API."""
    routes = [route for router in ROUTERS for route in router.routes]
    document = get_openapi(title="Headrace's execution API", version=API_VERSION, routes=routes)
    header = {"name": VERSION_HEADER, "in": "header", "required": True, "schema": {"type": "string", "const": API_VERSION}}
    for operation in _operations(document):
        operation.setdefault("parameters", []).append(header)
    return _completed(document)


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with the problems that every call may answer, and who may call."""
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
        operation["security"] = [{"bearer": []}, {}] if operation["tags"] == ["admin"] else [{"bearer": []}]
    return document


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document["paths"].values():
        for method in METHODS:
            if method in path:
                yield path[method]
