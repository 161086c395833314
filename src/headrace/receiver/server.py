"""uvicorn for unknown senders: limits of time and number for connections, and a stop that finishes requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import uvicorn

from headrace.api.http.bounded_http import BoundedHttp
from headrace.receiver.app import ReceiverApp

REQUEST_SECONDS: Final = 30.0
"""Time from the first byte of a request, or from the connection, to the last byte of the body."""
MAX_CONNECTIONS: Final = 2_000
STOP_SECONDS: Final = 25
OVERLOADED: Final = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 2\r\ncontent-length: 0\r\n\r\n"

StopSignals = Callable[[Callable[[], None]], Any]
"""Returns a context manager that calls a function at each signal to stop."""


class TimedHttp(BoundedHttp):
    """HTTP that closes connections whose requests do not arrive in time."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time of the first request, or close the connection if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.write(OVERLOADED)
            transport.close()
            return
        self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time."""
        self._stop_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received data. Bytes between two requests start the time of the next one."""
        super().data_received(data)
        cycle: Any = self.cycle  # None before the first request
        idle = cycle is None or cycle.response_complete
        if idle and self._deadline is None and self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self._start_deadline()

    def on_message_begin(self) -> None:
        """Start the time of a request."""
        super().on_message_begin()
        self._stop_deadline()
        self._start_deadline()

    def on_message_complete(self) -> None:
        """Stop the time: the request is here."""
        self._stop_deadline()
        super().on_message_complete()

    def _start_deadline(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.close)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class ReceiverServer(uvicorn.Server):
    """Serves until a signal of `stop_signals`, then finishes the requests in progress. A second signal does not wait for them."""

    def __init__(self, app: ReceiverApp, stop_signals: StopSignals) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=TimedHttp,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=STOP_SECONDS,
            )
        )
        self._stop_signals = stop_signals

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal. Unlike uvicorn, do not send it to this process again after the stop."""
        with self._stop_signals(partial(self.stop)):
            yield

    def stop(self) -> None:
        """Stop: accept no connections, and finish the requests in progress. The second call does not wait for them."""
        self.force_exit = self.should_exit
        self.should_exit = True
