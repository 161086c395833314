"""Every error as problem+json (RFC 9457): a stable type, a description of the error, and advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from headrace.errors import ApiRefused, ResourceError, StorageBusy, StorageFull
from headrace.wire.problem import PROBLEM_JSON, PROBLEM_PREFIX, Problem


class ProblemType(NamedTuple):
    """The title of a problem type, its HTTP statuses, and the advice of the reference page."""

    title: str
    statuses: tuple[int, ...]
    advice: str


PROBLEM_TYPES = {
    "invalid": ProblemType("Invalid request", (400, 422), "Correct the field or value that `detail` names. Another attempt fails alike."),
    "unauthorized": ProblemType(
        "No valid credentials", (401,), "Set `HEADRACE_KEY` to the deployment key, or create a token: `headrace tokens create`."
    ),
    "expired": ProblemType(
        "Expired token", (401,), "Create a new token: `headrace tokens create`. Running processes register again by themselves."
    ),
    "wrong-host": ProblemType("Unknown host name", (421,), "Add the host name of the URL to `HEADRACE_ALLOWED_HOSTS` of the API server."),
    "cross-origin": ProblemType(
        "Request from another site", (403,), "Send the request from the status page or the command line, not from another site."
    ),
    "unreadable": ProblemType(
        "No key decrypts the value", (409,), "Put the missing key back into `HEADRACE_FERNET_KEYS`, or set the value again."
    ),
    "forbidden": ProblemType("Not allowed for this caller", (403,), "Use a token of the scope that `detail` names."),
    "not-found": ProblemType("Not found", (404,), "Check the name or id. `hint` names the command that lists them."),
    "not-allowed": ProblemType(
        "Method not allowed", (405,), "Use a method that the path supports. `/api/openapi.json` and `/execution/openapi.json` list them."
    ),
    "ambiguous": ProblemType("Ambiguous name", (409,), "Use one of the ids in `hint`."),
    "held": ProblemType("Leased by another job", (409,), "Stop the other process, or wait until its lease ends."),
    "conflict": ProblemType(
        "Conflict with the stored state",
        (409,),
        "Do not repeat the request: `detail` names what is stored. A driver acquires its scope again; for a table, see the runbook.",
    ),
    "fenced": ProblemType(
        "Fenced by a newer owner",
        (409,),
        "Nothing: the process gives up its work and registers again. If it recurs, check clocks and pauses of the host.",
    ),
    "ended": ProblemType("Job has ended", (409,), "Use a running job: `headrace triggerers list`."),
    "incomplete": ProblemType("Incomplete declaration", (409,), "Send all pages of the declaration again. A triggerer does so by itself."),
    "too-large": ProblemType("Request too large", (413, 431), "Send fewer or smaller items in a request."),
    "too-often": ProblemType("Too many requests", (429,), "Wait for the seconds in `Retry-After`. Look for clients with a wrong key."),
    "unsupported-version": ProblemType("Unknown API version", (400,), "Upgrade the API server first, then its clients."),
    "unavailable": ProblemType(
        "Temporarily unavailable", (503,), "Retry after the seconds in `Retry-After`. If it lasts, check the database."
    ),
    "storage-full": ProblemType(
        "Database is full", (507,), "Free disk space for the database. Processes retry, and lose nothing meanwhile."
    ),
    "internal": ProblemType("Internal error", (500,), "Read the log of the API server, and report the traceback as a defect."),
}
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
    return problem(422, "invalid", in_words(errors) if errors else str(error))


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
