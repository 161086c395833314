"""Hears of the commits of other apis on the same database."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from threading import Thread

import psycopg
from sqlalchemy import Engine

from headrace.store.notices import CHANNEL, heard
from headrace.store.postgresql import parameters

AGAIN = 1.0
"""Seconds between two attempts to reach a database that is away."""


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
                open_for_news = not select.select([self._woken], [], [], AGAIN)[0]

    def _listen(self) -> bool:
        """Listen until closed (False) or until the connection breaks (an error)."""
        places, named = self._engine.dialect.create_connect_args(self._engine.url)
        with psycopg.connect(*places, **(dict(named) | parameters(self._engine.url)), autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            self._tell(True)  # of what was committed while nobody listened
            while True:
                ready = select.select([connection.fileno(), self._woken], [], [])[0]
                if self._woken in ready:
                    return False
                others, rang = heard((notice.payload for notice in connection.notifies(timeout=0)), self._me)
                if others:
                    self._tell(rang)
