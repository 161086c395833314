"""Bodies parsed directly from bytes into a wire model and back, without an intermediate tree of Python objects. The
OpenAPI document is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope

from headrace.api.http.problems import Refusal, in_words

SMALL = 64 * 1024

M = TypeVar("M", bound=BaseModel)


class WireResponse(JSONResponse):
    """A wire model as the response, written to JSON by pydantic itself."""

    def render(self, content: BaseModel) -> bytes:
        """Return `content` as JSON bytes."""
        return content.model_dump_json().encode()


class JsonResponse(JSONResponse):
    """A response whose JSON is already bytes."""

    def render(self, content: bytes) -> bytes:
        """Return `content` as it is."""
        return content


class WireRoute(APIRoute):
    """A route whose body is parsed from bytes. A large body is parsed outside of the loop, so that heartbeats are served."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that serves a request of this route."""
        handle = super().get_route_handler()
        model = self.body_field.field_info.annotation if self.body_field else None
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return handle
        taken = model

        async def serve(request: Request) -> Response:
            return await handle(_WireRequest(request.scope, request.receive, taken))

        return serve


class _WireRequest(Request):
    """A request whose JSON is one `model`."""

    def __init__(self, scope: Scope, receive: Receive, model: type[BaseModel]) -> None:
        super().__init__(scope, receive)
        self._model = model

    async def json(self) -> BaseModel:
        """Return the body, read as the model."""
        return await parse_body(await self.body(), self._model)


async def parse_body(body: bytes, model: type[M]) -> M:
    """Return a JSON body, parsed as `model`.

    Raises:
        Refusal: The body is not JSON, or is invalid for the model.
    """
    try:
        if len(body) <= SMALL:
            return model.model_validate_json(body)
        return await run_in_threadpool(model.model_validate_json, body)
    except ValidationError as error:
        raise Refusal(422, "invalid", in_words(error.errors(include_url=False, include_input=False))) from error
