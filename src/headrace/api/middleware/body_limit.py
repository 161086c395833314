"""Limits of a request: the bytes of its body, with or without a content length, and the bytes of its headers."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.api.http.bounded_http import MAX_HEADER_BYTES
from headrace.api.http.problems import Refusal, problem
from headrace.wire.base import MAX_BODY_BYTES


class BodyLimit:
    """Refuse a body of more than `max_bytes` bytes, before it is read if it has a content length."""

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose body is within the limit."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
            await problem(431, "too-large", f"The headers are longer than {MAX_HEADER_BYTES} bytes.")(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced) > self._max_bytes:
            await problem(413, "too-large", self._detail, hint=HINT)(scope, receive, send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._max_bytes:
                raise Refusal(413, "too-large", self._detail, hint=HINT)
            return message

        await self._app(scope, counted, send)

    @property
    def _detail(self) -> str:
        return f"The body is larger than {self._max_bytes} bytes."


HINT = "Send smaller batches."
