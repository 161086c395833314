"""Listen for the commits of other API servers on the same database."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from threading import Thread

import psycopg
import structlog
from sqlalchemy import Engine

from headrace.store.dialects.notifications import CHANNEL, parse_notifications
from headrace.store.dialects.postgresql import parameters

log = structlog.get_logger(__name__)

RETRY_SECONDS = 1.0
"""Seconds between two attempts to reach an unavailable database."""


def readable(descriptors: Sequence[int], timeout: float | None = None) -> list[int]:
    """Return the readable descriptors, after at most `timeout` seconds.

    Unlike with select(), a descriptor may be above 1,023.
    """
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN | select.POLLHUP | select.POLLERR)
    return [descriptor for descriptor, _ in waiting.poll(None if timeout is None else timeout * 1000)]


class Listener:
    """Call `on_commit` in a separate thread after commits of servers other than `me`, and after possible gaps.

    Its argument is whether a server sent a commit signal, or may have.
    """

    def __init__(self, engine: Engine, me: str, on_commit: Callable[[bool], None]) -> None:
        self._engine = engine
        self._me = me
        self._on_commit = on_commit
        self._woken, self._wake = os.pipe()
        self._thread = Thread(target=self._loop, name="headrace-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        os.close(self._wake)
        self._thread.join()
        os.close(self._woken)

    def _loop(self) -> None:
        open_for_news = True
        while open_for_news:
            try:
                open_for_news = self._listen()
            except psycopg.Error:  # the database is unavailable: nothing is committed there meanwhile
                open_for_news = not readable([self._woken], RETRY_SECONDS)
            except Exception as error:  # after any other error too, listening must continue
                log.error("listener failed", retry_seconds=RETRY_SECONDS, exc_info=error)
                open_for_news = not readable([self._woken], RETRY_SECONDS)

    def _listen(self) -> bool:
        """Listen until closed and return False. Raise the driver's error if the connection breaks."""
        positional, named = self._engine.dialect.create_connect_args(self._engine.url)
        with psycopg.connect(*positional, **(dict(named) | parameters(self._engine.url)), autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            self._on_commit(True)  # for the commits of the time without a listener
            while True:
                ready = readable([connection.fileno(), self._woken])
                if self._woken in ready:
                    return False
                others, signaled = parse_notifications((notice.payload for notice in connection.notifies(timeout=0)), self._me)
                if others:
                    self._on_commit(signaled)
