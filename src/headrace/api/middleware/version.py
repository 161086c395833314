"""The protocol's version: every request to the machine API names it, every answer repeats it.

A request of the newest version is served as it is. One of an older version goes to that version's own routes, which Cadwyn derives from
the newest and from what `headrace.api.middleware.changes` declares: they read and answer the older models, and convert.
"""

from __future__ import annotations

from functools import cache

from cadwyn import generate_versioned_routers
from fastapi import APIRouter
from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.api.execution.routers import with_retired
from headrace.api.http.problems import problem
from headrace.api.middleware.changes import VERSIONS
from headrace.wire.base import API_VERSION, VERSION_HEADER

MACHINE_PREFIX = "/execution/"
DESCRIPTION_PATH = "/execution/openapi.json"
SPOKEN = tuple(VERSIONS.version_values)
"""The versions that this api speaks, the newest first."""
ASKED = "headrace.api_version"
"""Under this key a request's scope says which version it asks for, once that is known to be spoken."""


class VersionCheck:
    """Refuses requests to the machine API that name no version, or one that this api does not speak."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose version is known."""
        if scope["type"] != "http" or not scope["path"].startswith(MACHINE_PREFIX) or scope["path"] == DESCRIPTION_PATH:
            await self._app(scope, receive, send)
            return
        asked = Headers(scope=scope).get(VERSION_HEADER)
        answered = asked if asked in SPOKEN else API_VERSION

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[VERSION_HEADER] = answered
            await send(message)

        if asked in SPOKEN:
            scope[ASKED] = asked
            await self._app(scope, receive, marked)
            return
        detail = f"The header {VERSION_HEADER} is missing." if asked is None else f"Version {asked} is not known."
        hint = f"This api speaks {', '.join(SPOKEN)}; a newer client needs a newer api."
        await problem(400, "unsupported-version", detail, hint=hint)(scope, receive, marked)


class OlderVersion(BaseRoute):
    """All routes of the machine API in one older version. It goes before the newest routes, and takes what names its version."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._router = routes_of(version)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Take a request that names this version."""
        return (Match.FULL if scope.get(ASKED) == self._version else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request through the routes of this version."""
        before = VERSIONS.api_version_var.set(self._version)
        try:
            await self._router(scope, receive, send)
        finally:
            VERSIONS.api_version_var.reset(before)


@cache
def _derived() -> dict[str, APIRouter]:
    return generate_versioned_routers(with_retired(), VERSIONS).endpoints


def routes_of(version: str) -> APIRouter:
    """Return the routes that Cadwyn derives for one version."""
    made = APIRouter()
    made.include_router(_derived()[version])  # which is when FastAPI takes up what Cadwyn put around the endpoints
    return made
