"""The protocol's version: every request to the machine API names it, every answer repeats it."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.api.problems import problem
from headrace.wire.model import API_VERSION, VERSION_HEADER

MACHINE_PREFIX = "/execution/"
KNOWN = frozenset({API_VERSION})


class VersionCheck:
    """Refuses requests to the machine API that name no version, or one that this api does not speak."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose version is known."""
        if scope["type"] != "http" or not scope["path"].startswith(MACHINE_PREFIX):
            await self._app(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[VERSION_HEADER] = API_VERSION
            await send(message)

        asked = Headers(scope=scope).get(VERSION_HEADER)
        if asked in KNOWN:
            await self._app(scope, receive, marked)
            return
        detail = f"The header {VERSION_HEADER} is missing." if asked is None else f"Version {asked} is not known."
        hint = f"This api speaks {', '.join(sorted(KNOWN))}; use the same version of Headrace everywhere."
        await problem(400, "unsupported-version", detail, hint=hint)(scope, receive, marked)
