"""A process that is killed while followers of one leader are released: URL STATE FOLLOWERS SLICES.

Run it as `python -m support.ordering.release_process`.

The followers are `waiting` for it to come, or `blocked` until it is handled; `own`: in a database of its own, handled when it comes.
Or they follow one another in a `cycle`, or are ready by a clock that was ahead and is `turned` back.
"""

from __future__ import annotations

import os
import signal
import sys

from headrace.core.ordering.delivery import Claim
from headrace.ports.ordering_store import OrderingStore
from headrace.store.db.database import Database
from headrace.store.ordering import releases
from headrace.store.ordering.scopes import scope_named
from headrace.store.ordering.sql_store import SqlOrdering
from headrace.store.ordering.standalone.store import StandaloneOrderingStore
from headrace.store.tables.base import metadata
from headrace.store.tables.ordering import ORDERING_TABLES
from support.ordering.events import START, Event, caused

SLICE = 10
DAY = 86_400_000_000


def home_of(url: str) -> SqlOrdering:
    """Return the home that dies, or goes on."""
    releases.RELEASED_EVENTS = SLICE  # type: ignore[misc]
    database = Database(url)
    database.write(lambda connection: metadata.create_all(connection, tables=ORDERING_TABLES))
    return SqlOrdering(database, database.write(lambda connection: scope_named(connection, "killed", 3_600_000_000)), by_age=False)


def begin(url: str, state: str, followers: int) -> OrderingStore:
    """Offer the followers and release the first slice of them."""
    events = [caused(Event(f"f{n}", "leader", followers - n)) for n in range(followers)]
    if state == "own":
        releases.RELEASED_EVENTS = SLICE  # type: ignore[misc]
        own = StandaloneOrderingStore(url, "killed", 3_600_000_000, by_age=False)
        own.offer([one._replace(body="null") for one in events], START)
        claim = own.enter(caused(Event("leader", None, 0)), START)
        assert isinstance(claim, Claim)
        assert own.finish(claim, START, 0) is not None
        return own
    home = home_of(url)
    if state == "cycle":
        ring = [caused(Event(f"f{n}", f"f{(n + 1) % followers}", followers - n)) for n in range(followers)]
        home.offer(ring, START)
        return home
    if state == "turned":
        home.offer([caused(Event(f"f{n}", None, 0)) for n in reversed(range(followers))], START + DAY)
        home.offer([], START)
        return home
    home.offer(events, START)
    home.offer([caused(Event("leader", None, 0))], START)
    if state == "blocked":
        while home.release_some(START):
            pass
        assert home.settle(home.claim(1, START), START) == 1
    return home


def main() -> None:
    url, state, followers, slices = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    home = begin(url, state, followers)
    for _ in range(slices):
        assert home.release_some(START)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
