"""Hears of the commits of other apis on the same database."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from threading import Thread

import psycopg
import structlog
from sqlalchemy import Engine

from headrace.store.dialects.notifications import CHANNEL, heard
from headrace.store.dialects.postgresql import parameters

log = structlog.get_logger(__name__)

AGAIN = 1.0
"""Seconds between two attempts to reach a database that is away."""


def readable(descriptors: Sequence[int], timeout: float | None = None) -> list[int]:
    """Return those of the descriptors that can be read, at the latest after `timeout` seconds.

    Unlike those of select(), they may be above 1,023.
    """
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN | select.POLLHUP | select.POLLERR)
    return [descriptor for descriptor, _ in waiting.poll(None if timeout is None else timeout * 1000)]


class Listener:
    """Calls `tell` in its own thread after commits of others than `me`, and whenever it may have missed some: with whether one rang."""

    def __init__(self, engine: Engine, me: str, tell: Callable[[bool], None]) -> None:
        self._engine = engine
        self._me = me
        self._tell = tell
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
            except psycopg.Error:  # the database is away: nothing is committed there meanwhile
                open_for_news = not readable([self._woken], AGAIN)
            except Exception as error:  # whatever it was, commits of others must be heard of
                log.error("listener failed", retry_seconds=AGAIN, exc_info=error)
                open_for_news = not readable([self._woken], AGAIN)

    def _listen(self) -> bool:
        """Listen until closed (False) or until the connection breaks (an error)."""
        places, named = self._engine.dialect.create_connect_args(self._engine.url)
        with psycopg.connect(*places, **(dict(named) | parameters(self._engine.url)), autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            self._tell(True)  # of what was committed while nobody listened
            while True:
                ready = readable([connection.fileno(), self._woken])
                if self._woken in ready:
                    return False
                others, rang = heard((notice.payload for notice in connection.notifies(timeout=0)), self._me)
                if others:
                    self._tell(rang)
