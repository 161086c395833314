"""One receiver or sender of the client library, with one request at a time.

The library reads frames and writes requests in turn on one connection, and is not safe for two tasks. A request therefore waits for up to
TURN_SECONDS, the time of one look at the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from headrace.sources.service_bus.library import Connections
from headrace.sources.service_bus.service_errors import REJECTED, described

TURN_SECONDS: Final = 0.05
ANSWER_SECONDS: Final = 10.0
LIBRARY_SECONDS: Final = 15.0
"""Time limit of the library for the same, which comes later."""
CLOSE_SECONDS: Final = 2.0


class Handler:
    """A receiver or sender of the library, which `make` creates. After an error, the next request connects again.

    `what` names what failed in errors, and `rejected` has the errors that another attempt does not change.
    """

    def __init__(self, make: Callable[[], Any], what: str, rejected: Mapping[str, str] = REJECTED) -> None:
        self._make = make
        self._what = what
        self._rejected = rejected
        self._handler: Any = None
        self._connections: Connections | None = None
        self._turn = asyncio.Lock()

    async def request(self, request: Callable[[Any], Awaitable[Any]]) -> Any:
        """Return the answer to a request, for which the handler is connected. Raises as `_error` says.

        The request goes on if the caller is cancelled: the library leaves a connection open that is cancelled while it opens.
        """
        task = asyncio.create_task(self._answer(request), name="headrace request to Service Bus")
        task.add_done_callback(_retrieve)
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Return messages that have arrived and were not received, and close the connection. The locks of received messages stay."""
        if self._turn.locked():  # by a request whose caller was cancelled
            self._cut()
        async with self._turn:
            await self._discard()

    async def _answer(self, request: Callable[[Any], Awaitable[Any]]) -> Any:
        async with self._turn:
            try:
                if self._handler is None:
                    self._handler = self._create()
                return await self._bounded(request)
            except Exception as error:
                raised = await self._error(error)
                raise raised from (error if raised is not error else error.__cause__)

    async def _bounded(self, request: Callable[[Any], Awaitable[Any]]) -> Any:
        """Connect and send a request, and cut the connection after ANSWER_SECONDS.

        The limits of the library come later: after a limit, it reads on with what it has.
        """

        async def answer() -> Any:
            return await request(await self._handler.__aenter__())

        task = asyncio.create_task(answer(), name="headrace answer of Service Bus")
        await asyncio.wait({task}, timeout=ANSWER_SECONDS)
        if not task.done():
            self._cut()
        return await task

    def _create(self) -> Any:
        handler = self._make()
        self._connections = Connections(handler)
        return handler

    async def _error(self, error: Exception) -> Exception:
        """Discard the handler after an error, and return the error of Headrace for it."""
        await self._discard()
        return described(self._what, error, self._rejected)

    async def _discard(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            with suppress(Exception):  # of a connection that may be lost
                async with asyncio.timeout(CLOSE_SECONDS):
                    await handler.close()
            self._cut()

    def _cut(self) -> None:
        if self._connections is not None:
            self._connections.cut()


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Retrieve the error of a request whose caller was cancelled, so that it is not reported as lost."""
    if not task.cancelled():
        task.exception()
