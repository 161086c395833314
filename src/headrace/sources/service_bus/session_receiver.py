"""Receive the messages of one session. The service settles them over the link that received them, and over no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from headrace.errors import StreamError
from headrace.sources.service_bus.handler import ANSWER_SECONDS
from headrace.sources.service_bus.receiver import EntityReceiver, Lost
from headrace.sources.service_bus.service_errors import is_lock_lost, is_session_lost


class SessionReceiver(EntityReceiver):
    """Receives the messages of one session. It connects once: with another connection, it would get another session.

    The error of a lost session is raised as it is.
    """

    def __init__(self, make: Callable[[], Any], what: str) -> None:
        super().__init__(make, what)
        self._is_ended = False

    @property
    def session(self) -> str | None:
        """The session that the service has given this receiver, or None."""
        session = None if self._handler is None else self._handler.session
        return session.session_id if session is not None and isinstance(session.session_id, str) else None

    async def open(self) -> None:
        """Connect, and wait until the service gives a session. Raises as `EntityReceiver.open`, or the error of a lost session."""
        end = time.monotonic() + ANSWER_SECONDS
        await super().open()
        while self.session is None:
            if time.monotonic() > end:
                raise StreamError(f"{self._what}: the service gave no session within {ANSWER_SECONDS:g} s.")
            await super().open()

    async def renew_session(self) -> None:
        """Renew the lock of the session."""
        await self.request(lambda receiver: receiver.session.renew_lock(timeout=ANSWER_SECONDS))

    async def _complete_later(self, tokens: Sequence[UUID]) -> Lost:
        return dict.fromkeys(tokens, "the message was settled before")

    def _create(self) -> Any:
        if self._is_ended:
            raise StreamError(f"{self._what}: the connection of the session was lost.")
        return super()._create()

    async def _error(self, error: Exception) -> Exception:
        headrace_error = await super()._error(error)
        if is_lock_lost(error):  # of a message, which has that of its session
            await self._discard()
        return error if is_session_lost(error) else headrace_error

    async def _discard(self) -> None:
        self._is_ended = True
        await super()._discard()
