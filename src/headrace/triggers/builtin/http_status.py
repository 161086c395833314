"""A trigger that polls an HTTP service until its response matches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import msgspec
import structlog

from headrace.core.matching.patterns.match_index import MatchIndex
from headrace.core.matching.patterns.parser import parse_pattern
from headrace.errors import ProjectError
from headrace.triggers.base import BaseTrigger
from headrace.triggers.event import RunFailed, TriggerEvent
from headrace.triggers.secrets import aget_connection

MAX_BODY_BYTES: Final = 1024 * 1024
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class HttpStatusTrigger(BaseTrigger):
    """Fires once `url` responds with a status of `until` and, if `match` is given, with JSON that matches.

    The event is `{"url", "status", "body"}`; the body is parsed if it is JSON. If the JSON matches `fail`, the waiting run fails with the
    body as the reason. `interval` is the number of seconds between two requests, `timeout` that for a response; a service that does not
    respond is requested again. `headers` are sent to the origin of `url` only, not after a redirect. `connection` names a connection whose
    password is sent as a bearer token, or with its login as basic authentication.
    """

    def __init__(
        self,
        url: str,
        *,
        until: int | Sequence[int] = 200,
        match: Mapping[str, Any] | None = None,
        fail: Mapping[str, Any] | None = None,
        interval: float = 5.0,
        timeout: float = 30.0,
        headers: Mapping[str, str] | None = None,
        connection: str | None = None,
    ) -> None:
        super().__init__()
        if urlsplit(url).scheme not in {"http", "https"}:
            raise ProjectError(f"Invalid URL {url!r}.", hint="Use http:// or https://")
        if interval <= 0 or timeout <= 0:
            raise ProjectError(
                "An HttpStatusTrigger needs time between two questions and for an answer.", hint="Give seconds, more than 0."
            )
        self.url = url
        self.until = [until] if isinstance(until, int) else list(until)
        self.match = match
        self.fail = fail
        self.interval = interval
        self.timeout = timeout
        self.headers = dict(headers or {})
        self.connection = connection
        self._done = _index(match, "match=")
        self._failed = _index(fail, "fail=")

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the keyword arguments."""
        names = ("url", "until", "match", "fail", "interval", "timeout", "headers", "connection")
        return f"{__name__}.HttpStatusTrigger", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event when the service responds as expected."""
        log = structlog.get_logger(__name__)
        async with await self._client() as client:
            while True:
                try:
                    fired = self._judged(*await self._request(client))
                except httpx.HTTPError as error:
                    log.warning("no answer, asking again", url=self.url, error=f"{type(error).__name__}: {error}")
                    fired = None
                if fired is not None:
                    yield fired
                    return
                await asyncio.sleep(self.interval)

    async def _client(self) -> httpx.AsyncClient:
        headers, auth = dict(self.headers), None
        if self.connection is not None:
            known = await aget_connection(self.connection)
            if known.login:
                auth = httpx.BasicAuth(known.login, known.password or "")
            elif known.password:
                headers["Authorization"] = f"Bearer {known.password}"
        parts = urlsplit(self.url)
        return httpx.AsyncClient(
            headers=headers,
            auth=auth,
            timeout=self.timeout,
            trust_env=parts.hostname not in LOOPBACK,
            verify=parts.scheme != "http",  # plain HTTP checks no certificate, and loading the authorities takes long
            follow_redirects=True,
            event_hooks={"request": [self._keep_secrets]},
        )

    async def _keep_secrets(self, request: httpx.Request) -> None:
        """Remove credentials from a request that a redirect sends to another origin. httpx removes only `Authorization`."""
        if _is_same_origin(httpx.URL(self.url), request.url):
            return
        for name in self.headers:
            if name in request.headers and name.lower() != "host":
                del request.headers[name]

    async def _request(self, client: httpx.AsyncClient) -> tuple[int, Any]:
        """Return the status and the body of a response; for a body that is too large, only its beginning as text."""
        async with client.stream("GET", self.url) as response:
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    return response.status_code, body[:MAX_BODY_BYTES].decode(errors="replace")
        try:
            return response.status_code, msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return response.status_code, body.decode(errors="replace")

    def _judged(self, status: int, body: Any) -> TriggerEvent | None:
        if self._failed is not None and isinstance(body, dict) and self._failed.matches(body):
            return RunFailed({"url": self.url, "status": status, "body": body})
        if status not in self.until:
            return None
        if self._done is not None and not (isinstance(body, dict) and self._done.matches(body)):
            return None
        return TriggerEvent({"url": self.url, "status": status, "body": body})


def _is_same_origin(first: httpx.URL, second: httpx.URL) -> bool:
    """Return whether both have one origin, or the second is the first with TLS at its usual port."""
    origins = [(url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)) for url in (first, second)]
    return origins[0] == origins[1] or origins == [("http", first.host, 80), ("https", first.host, 443)]


def _index(pattern: Mapping[str, Any] | None, argument: str) -> MatchIndex | None:
    if pattern is None:
        return None
    index = MatchIndex()
    index.add(parse_pattern(pattern, argument), 0)
    return index
