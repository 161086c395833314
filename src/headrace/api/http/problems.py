"""Every error as problem+json (RFC 9457): a stable type, a description of the error, and advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from headrace.errors import ApiRefused, HeadraceError, ResourceError, StorageBusy, StorageFull
from headrace.wire.problem import PROBLEM_JSON, PROBLEM_PREFIX, PROBLEM_TYPES, Problem

_BY_STATUS = {
    400: "invalid",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "not-allowed",
    413: "too-large",
    503: "unavailable",
}


class Refusal(HTTPException):
    """A request is refused with the problem `slug`."""

    def __init__(self, status: int, slug: str, detail: str, *, hint: str | None = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, detail, headers)
        self.slug = slug
        self.hint = hint


def problem(status: int, slug: str, detail: str | None, *, hint: str | None = None, headers: Mapping[str, str] | None = None) -> Response:
    """Return the problem `slug` as a response."""
    body = Problem(type=PROBLEM_PREFIX + slug, title=PROBLEM_TYPES[slug].title, status=status, detail=detail, hint=hint)
    return Response(body.model_dump_json(exclude_none=True), status, headers, PROBLEM_JSON)


def in_words(errors: list[Any]) -> str:
    """Return the first validation error as one sentence, with the number of further ones."""
    first = errors[0]
    if first["type"] == "missing" and tuple(first["loc"]) == ("body",):
        return "The body is missing; it is JSON."
    where = ".".join(str(part) for part in first["loc"] if part != "body")
    what = str(first["msg"]).removeprefix("Value error, ")
    more = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{where}: {what}{more}." if where else f"{what}{more}."


def install(app: FastAPI) -> None:
    """Make `app` respond to every error with a problem."""
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(OverflowError, _overflow)
    app.add_exception_handler(ApiRefused, _refused_by_store)
    app.add_exception_handler(ResourceError, _resource)
    app.add_exception_handler(Exception, _failed)


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, Refusal):
        return problem(error.status_code, error.slug, error.detail, hint=error.hint, headers=error.headers)
    status = error.status_code if isinstance(error, HTTPException) else 400
    headers = error.headers if isinstance(error, HTTPException) else None
    slug = _BY_STATUS.get(status, "invalid" if status < 500 else "internal")
    detail = f"{request.method} {request.url.path} is not here." if status == 404 else getattr(error, "detail", None)
    return problem(status, slug, detail, headers=headers)


async def _invalid(request: Request, error: Exception) -> Response:
    del request
    errors = list(error.errors()) if isinstance(error, RequestValidationError) else []
    return problem(422, "invalid", in_words(errors) if errors else str(error), hint=_hint(errors[0]) if errors else None)


def _hint(error: Any) -> str | None:
    """Return the hint of the error that a validator translated."""
    cause = getattr(error.get("ctx", {}).get("error"), "__cause__", None)
    return cause.hint if isinstance(cause, HeadraceError) else None


async def _overflow(request: Request, error: Exception) -> Response:
    del request, error
    return problem(422, "invalid", "A number is larger than 64 bits hold.")


async def _refused_by_store(request: Request, error: Exception) -> Response:
    del request
    status, slug = getattr(error, "status", None), getattr(error, "problem", None)
    return problem(status or 400, slug or "invalid", str(error), hint=getattr(error, "hint", None))


async def _resource(request: Request, error: Exception) -> Response:
    del request
    hint = getattr(error, "hint", None)
    if isinstance(error, StorageFull):
        return problem(507, "storage-full", str(error), hint=hint)
    wait = {"Retry-After": "1"} if isinstance(error, StorageBusy) else {"Retry-After": "5"}
    return problem(503, "unavailable", str(error), hint=hint, headers=wait)


async def _failed(request: Request, error: Exception) -> Response:
    del error
    return problem(500, "internal", f"{request.method} {request.url.path} failed; the api's log says why.")
