"""The version of the execution API: each request names it, each response repeats it."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.api.http.problems import problem
from headrace.wire.base import API_VERSION, VERSION_HEADER

EXECUTION_PREFIX = "/execution/"
DESCRIPTION_PATH = f"{EXECUTION_PREFIX}openapi.json"
SUPPORTED_VERSIONS = (API_VERSION,)


class VersionCheck:
    """Refuse requests to the execution API that name no version, or a version that this API does not support."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that names a supported version."""
        if scope["type"] != "http" or not scope["path"].startswith(EXECUTION_PREFIX) or scope["path"] == DESCRIPTION_PATH:
            await self._app(scope, receive, send)
            return

        async def send_with_version(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[VERSION_HEADER] = API_VERSION
            await send(message)

        version = Headers(scope=scope).get(VERSION_HEADER)
        if version in SUPPORTED_VERSIONS:
            await self._app(scope, receive, send_with_version)
            return
        detail = f"The header {VERSION_HEADER} is missing." if version is None else f"Version {version} is not known."
        hint = f"This api speaks {', '.join(SUPPORTED_VERSIONS)}; a newer client needs a newer api."
        await problem(400, "unsupported-version", detail, hint=hint)(scope, receive, send_with_version)
