"""The calls that bring events, served without FastAPI's solving of dependencies, which costs more than all that they do.

FastAPI has routes for them as well: they describe them, and they serve whatever is unusual here.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from fastapi import Request, Response
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from headrace.api.auth import authentication
from headrace.api.execution import log
from headrace.api.http import dependencies
from headrace.api.http.wire_route import parse_body
from headrace.wire.custody.events import EventBatch

Endpoint = Callable[..., Awaitable[Response]]


class FrequentCall(BaseRoute):
    """One call of a triggerer: `path` has a group for each whole number that `endpoint` takes before its `model`.

    It goes before FastAPI's routes, and takes nothing but JSON that is called so, and says how long it is.
    """

    def __init__(self, path: str, model: type[BaseModel], endpoint: Endpoint) -> None:
        self._path = re.compile(path)
        self._model = model
        self._endpoint = endpoint

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Take the call as clients send it."""
        if scope["type"] != "http" or scope["method"] != "POST":
            return Match.NONE, {}
        found = self._path.fullmatch(scope["path"])
        headers = Headers(scope=scope)
        if found is None or headers.get("content-type") != "application/json" or headers.get("content-length", "0") == "0":
            return Match.NONE, {}
        return Match.FULL, {"path_params": {"numbers": found.groups()}}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the call as FastAPI's route would."""
        request = Request(scope, receive)
        numbers = map(int, scope["path_params"]["numbers"])
        given = await parse_body(await request.body(), self._model)
        caller = await authentication.triggerer(await authentication.caller(request, await authentication.tokens(request)))
        response = await self._endpoint(*numbers, given, await dependencies.store(request), await dependencies.durable(request), caller)
        await response(scope, receive, send)


def calls() -> list[BaseRoute]:
    """Return the calls that are served here."""
    prefix = log.router.prefix
    return [FrequentCall(f"{prefix}/triggers/events", EventBatch, log.append)]
