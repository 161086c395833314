"""The API server's app on a temporary database, called without a process or a socket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal

from headrace.api.app import create_app
from headrace.client.http.responses import Response, body_of
from headrace.client.pipeline import PipelineClient
from headrace.client.triggerer import TriggererClient
from headrace.store import Liveness, Store, open_store
from headrace.wire.base import API_VERSION, VERSION_HEADER
from headrace.wire.control.jobs import JobKind, RegisterJob

URL: Final = "http://127.0.0.1"
JOB_LIFETIME_MICROS: Final = 24 * 3_600_000_000
"""The jobs of a test send no heartbeats."""


class InProcessApi:
    """The app, its store, and the thread whose event loop runs it."""

    def __init__(self, store: Store, portal: BlockingPortal, app: Any) -> None:
        self.store = store
        self.portal = portal
        self._key = _KEY
        self._asgi = httpx.ASGITransport(app, client=("127.0.0.1", 1))

    def triggerer(self) -> TriggererClient:
        """Return a client for code in the portal's event loop."""
        return TriggererClient(URL, key=self._key, session=_Session(self._asgi))

    def pipeline(self) -> PipelineClient:
        """Return a client for code in other threads."""
        return PipelineClient(URL, key=self._key, transport=_BlockingTransport(self.portal, self._asgi))


_KEY: Final = uuid4().hex


@contextmanager
def open_api(folder: Path) -> Iterator[InProcessApi]:
    """Serve a new database in `folder`."""
    liveness = Liveness(threshold=JOB_LIFETIME_MICROS)
    with closing(open_store(f"sqlite:///{folder / 'headrace.db'}", liveness=liveness)) as store, start_blocking_portal() as portal:
        app = create_app(store, key=_KEY)
        with portal.wrap_async_context_manager(app.router.lifespan_context(app)):
            yield InProcessApi(store, portal, app)


def registration(kind: JobKind, project: str) -> RegisterJob:
    """Return the registration of a new job."""
    return RegisterJob(registration_id=uuid4().hex, kind=kind, hostname="test", pid=1, project=project)


class _Session:
    """Implements `Requests` for the client of a triggerer."""

    def __init__(self, asgi: httpx.ASGITransport) -> None:
        self._http = httpx.AsyncClient(transport=asgi, base_url=URL, headers={VERSION_HEADER: API_VERSION})

    async def aclose(self) -> None:
        """Close the client."""
        await self._http.aclose()

    async def request(
        self, method: str, path: str, *, content: bytes | None, params: Mapping[str, int | float | str] | None, headers: Mapping[str, str]
    ) -> bytes:
        """Return the body of a successful response."""
        response = await self._http.request(method, path, content=content, params=params, headers=headers)
        return body_of(Response(str(response.url), response.status_code, response.reason_phrase, response.headers, response.content))


class _BlockingTransport(httpx.BaseTransport):
    """Sends the requests of a blocking client to the app in the portal's event loop."""

    def __init__(self, portal: BlockingPortal, asgi: httpx.ASGITransport) -> None:
        self._portal = portal
        self._asgi = asgi

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the response, read to its end."""
        request.read()
        return self._portal.call(self._handle, request)

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        response = await self._asgi.handle_async_request(request)
        body = b"".join([part async for part in response.stream]) if isinstance(response.stream, httpx.AsyncByteStream) else b""
        return httpx.Response(response.status_code, headers=response.headers, stream=httpx.ByteStream(body))
