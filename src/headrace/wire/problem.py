"""Errors on the wire: problem+json (RFC 9457) with a stable `type`."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

PROBLEM_JSON = "application/problem+json"
PROBLEM_PREFIX = "https://headrace.dev/problems/"


class Problem(BaseModel):
    """One error. `type` is `PROBLEM_PREFIX` and a stable slug, such as `fenced`, `unauthorized`, `forbidden`, `not-found`, `invalid`,
    `unsupported-version`, `too-large`, `unavailable`, `storage-full`. `hint` says what to do.
    """

    model_config = ConfigDict(extra="ignore")

    type: str
    title: str
    status: int
    detail: str | None = None
    hint: str | None = None


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
    "timeout": ProblemType("Request too slow", (408,), "Send the whole request at once. Only `headrace receive` responds so."),
    "unsupported-media-type": ProblemType(
        "Unsupported content type", (415,), "Use a content type that `hint` names. Only `headrace receive` responds so."
    ),
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
