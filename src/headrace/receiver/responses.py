"""Responses of the receiver. Errors are problem details (RFC 9457) that say what to do."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from headrace.wire.problem import PROBLEM_JSON, PROBLEM_PREFIX, PROBLEM_TYPES, Problem

Headers = tuple[tuple[str, str], ...]
JSON: Final = "application/json"
_encode: Final = msgspec.json.Encoder().encode


class Response(NamedTuple):
    """A response. `reason` is that of an error, for the log."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: Headers = ()
    reason: str | None = None


def accepted(count: int) -> Response:
    """Return the response for messages that are durable."""
    return Response(202, _encode({"accepted": count}))


def plain_text(text: str) -> Response:
    """Return a response with a text."""
    return Response(200, text.encode(errors="replace"), "text/plain; charset=utf-8")


def problem(status: int, slug: str, detail: str, *, hint: str | None = None, headers: Headers = ()) -> Response:
    """Return an error as a problem."""
    body = Problem(type=PROBLEM_PREFIX + slug, title=PROBLEM_TYPES[slug].title, status=status, detail=detail, hint=hint)
    return Response(status, body.model_dump_json(exclude_none=True).encode(errors="replace"), PROBLEM_JSON, headers, detail)


def retry_after(seconds: int) -> Headers:
    """Return the header that names the time of the next attempt."""
    return (("Retry-After", str(seconds)),)
