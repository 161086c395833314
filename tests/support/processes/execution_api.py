"""A real api on a loopback port for tests of the execution API: uvicorn in a thread, over a real database."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import uvicorn

from headrace.api.app import create_app
from headrace.api.http.bounded_http import BoundedHttp
from headrace.api.middleware.access_control import NetworkExposure
from headrace.api.middleware.rate_limit import Bucket, RatePolicy
from headrace.store import Liveness, Store, open_store
from headrace.store.keyring import Keyring
from headrace.wire.base import API_VERSION, VERSION_HEADER
from support.processes.command_line import CommandResult, headrace
from support.processes.store import TurnedClock, database_url

KEY = "a deployment key for tests"
UNLIMITED = RatePolicy(token=Bucket(1e12, 1e12), address=Bucket(1e12, 1e12))
FERNET_KEY = "a-key-for-secrets-that-only-tests-ever-use_="


class _Server(uvicorn.Server):
    """Sets an event when it listens, so that tests need not poll."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@dataclass(frozen=True)
class Api:
    """A running api."""

    url: str
    store: Store
    clock: TurnedClock
    http: httpx.Client

    def ask(
        self, method: str, path: str, *, token: str | None = KEY, headers: dict[str, str] | None = None, **other: Any
    ) -> httpx.Response:
        sent = {VERSION_HEADER: API_VERSION} | ({"Authorization": f"Bearer {token}"} if token else {}) | (headers or {})
        return self.http.request(method, path, headers=sent, **other)

    def run(self, *arguments: str, given: str = "", key: str = KEY) -> CommandResult:
        """Run `headrace` as a user of this server, with `given` as its standard input."""
        return headrace(*arguments, cwd=Path.cwd(), text=given, HEADRACE_API_URL=self.url, HEADRACE_KEY=key, HEADRACE_HOME="/nonexistent")


@contextmanager
def serving(
    folder: Path,
    *,
    kind: str = "sqlite",
    max_body_bytes: int = 16 * 1024 * 1024,
    rates: RatePolicy | None = None,
    exposure: NetworkExposure | None = None,
    webhook_allow_private: bool = False,
) -> Iterator[Api]:
    clock = TurnedClock()
    store = open_store(database_url(kind, folder), clock=clock, liveness=Liveness(ticks=clock.ticks), keyring=Keyring([FERNET_KEY]))
    app = create_app(
        store, key=KEY, max_body_bytes=max_body_bytes, rates=rates, exposure=exposure, webhook_allow_private=webhook_allow_private
    )
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = _Server(uvicorn.Config(app, http=BoundedHttp, log_level="warning", access_log=False))
        thread = Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        assert server.listening.wait(30)
        try:
            url = f"http://127.0.0.1:{bound.getsockname()[1]}"
            # It loads no certificate authorities: that takes longer than most tests.
            with httpx.Client(base_url=url, timeout=60, trust_env=False, verify=False) as http:
                yield Api(url, store, clock, http)
        finally:
            server.should_exit = True
            thread.join(30)
            store.close()
