"""The ASGI application of the receiver: POST /hooks/NAME, and GET /health."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from headrace.errors import HeadraceError
from headrace.receiver.body import BodyReader, Receive, SenderDisconnected
from headrace.receiver.endpoint import Endpoint, not_stored, rejected
from headrace.receiver.rejection_log import RejectionLog
from headrace.receiver.responses import Response, problem, retry_after
from headrace.sources.http.rejection import RequestRejected

Send = Callable[[Any], Awaitable[None]]

HOOKS: Final = "/hooks/"
HEALTH: Final = "/health"
UNKNOWN: Final = "unknown"
"""The name of all endpoints in the log that do not exist."""
_ORIGIN: Final = re.compile(r"[A-Za-z0-9.:\-]{1,255}")

log = structlog.get_logger(__name__)


class ReceiverApp:
    """Serves the endpoints. No request stops it: an unexpected error is logged and becomes a response with status 500."""

    def __init__(self, endpoints: Sequence[Endpoint], bodies: BodyReader | None = None) -> None:
        self._endpoints: Mapping[str, Endpoint] = {endpoint.name: endpoint for endpoint in endpoints}
        self._bodies = bodies or BodyReader()
        self._rejections = RejectionLog()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        name = scope["path"].removeprefix(HOOKS)
        try:
            response = await self._respond(scope, name, receive)
        except SenderDisconnected:
            return
        except Exception:
            log.exception("request failed", path=scope["path"][:200])
            response = problem(500, "internal", "The receiver failed. Its log has the reason.")
        if response.reason is not None:
            known = name in self._endpoints or scope["path"] == HEALTH
            self._rejections.add(name if known else UNKNOWN, response.status, response.reason)
        await _send(response, send)

    async def _respond(self, scope: Mapping[str, Any], name: str, receive: Receive) -> Response:
        path, method = scope["path"], scope["method"]
        if path == HEALTH:
            return await self._health() if method in ("GET", "HEAD") else _not_allowed(method, "GET, HEAD")
        endpoint = self._endpoints.get(name) if path.startswith(HOOKS) else None
        if endpoint is None:
            return problem(
                404, "not-found", "There is no such endpoint.", hint="Check the URL. It ends in /hooks/ and the name of the endpoint."
            )
        headers = _headers(scope["headers"])
        if method == "OPTIONS":
            return _options(headers)
        if method != "POST":
            return _not_allowed(method, "POST, OPTIONS")
        if (early := endpoint.reject_early(headers)) is not None:
            return early
        try:
            async with self._bodies.reading(headers, receive) as body:
                return await endpoint.accept(headers, body, self._bodies.holding)
        except RequestRejected as error:
            return rejected(error)

    async def _health(self) -> Response:
        """Return 200 if every endpoint accepts requests. Names are only in the log, because anyone can ask."""
        for endpoint in self._endpoints.values():
            if endpoint.secrets is None:
                return problem(503, "unavailable", "An endpoint has no secret.", headers=retry_after(5))
            try:
                await endpoint.inbox.check()
            except HeadraceError as error:
                return not_stored(error)
        return Response(200, b'{"status":"ok"}')


def _headers(items: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers as text. The values of a repeated header are joined, so that none of them counts alone."""
    headers: dict[str, str] = {}
    for name, value in items:
        key, text = name.decode("latin-1"), _text(value)
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _not_allowed(method: str, allowed: str) -> Response:
    return problem(
        405, "not-allowed", f"The method {method[:20]} is not supported here.", hint=f"Use: {allowed}.", headers=(("Allow", allowed),)
    )


def _options(headers: Mapping[str, str]) -> Response:
    """Answer the question of a sender of CloudEvents whether it may send. Requests are verified one by one."""
    allowed: tuple[tuple[str, str], ...] = (("Allow", "POST, OPTIONS"),)
    origin = headers.get("webhook-request-origin", "")
    if _ORIGIN.fullmatch(origin):
        allowed += (("WebHook-Allowed-Origin", origin), ("WebHook-Allowed-Rate", "*"))
    return Response(200, headers=allowed)


async def _send(response: Response, send: Send) -> None:
    headers = [
        (b"content-type", response.content_type.encode()),
        (b"content-length", str(len(response.body)).encode()),
        (b"x-content-type-options", b"nosniff"),
        *((name.encode(), value.encode()) for name, value in response.headers),
    ]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})
