"""Bodies read straight from their bytes into a wire model: no tree of Python objects in between, and the same OpenAPI."""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from headrace.wire.model import Wire

M = TypeVar("M", bound=Wire)
SMALL = 64 * 1024


async def read(request: Request, model: type[M]) -> M:
    """Return the request's body as `model`; a large one is parsed off the loop, so that heartbeats are answered meanwhile."""
    body = await request.body()
    try:
        if len(body) <= SMALL:
            return model.model_validate_json(body)
        return await run_in_threadpool(model.model_validate_json, body)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False, include_input=False)) from error


def described(model: type[Wire]) -> dict[str, Any]:
    """Return what OpenAPI says of a body that is read as `model`."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}}


def answer(model: Wire) -> bytes:
    """Return `model` as JSON bytes."""
    return model.model_dump_json().encode()
