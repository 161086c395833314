"""Bodies of requests: written as JSON, and refused before they are sent if every API server would refuse them."""

from __future__ import annotations

from pydantic_core import PydanticSerializationError

from headrace.errors import ApiRefused
from headrace.wire.base import MAX_BODY_BYTES, WireModel


def as_body(body: WireModel) -> bytes:
    """Return a body as JSON.

    Raises:
        ApiRefused: It is not sent, because it cannot be JSON or is too large.
    """
    try:
        content = body.encode()
    except (PydanticSerializationError, UnicodeEncodeError) as error:
        raise ApiRefused(f"The request cannot be written as JSON: {error}", status=422, problem="invalid") from error
    return bounded(content)


def bounded(content: bytes) -> bytes:
    """Return a body within the size limit. Raises `ApiRefused` otherwise."""
    if len(content) > MAX_BODY_BYTES:
        raise ApiRefused(f"The request has {len(content):,} bytes: more than {MAX_BODY_BYTES:,}.", status=413, problem="too-large")
    return content
