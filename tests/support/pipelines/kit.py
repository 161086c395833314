"""What the tests of the pipeline share: a real api over a real store, and a feeder that fills its log."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from headrace.api.app import create_app
from headrace.pipeline.options import PipelineOptions
from headrace.store import Store, open_store
from headrace.store.control.jobs import Liveness
from headrace.store.queries.pipeline_runs import last_runs
from headrace.wire.custody.events import EventItem
from headrace.wire.pipelines.runs import RunReport
from support.processes.store import Holder, holder, sqlite_of

KEY = "a-deployment-key-for-tests-0123456789"
PATIENCE = 120.0


@dataclass
class Api:
    """A running api and the log behind it."""

    store: Store
    port: int
    feeders: dict[tuple[str, ...], Holder] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def options(self, home: Path, **other: Any) -> PipelineOptions:
        given: dict[str, Any] = {"api_url": self.url, "key": KEY, "home": home, "tables": home / "tables", "scope": "flights"}
        return PipelineOptions(**(given | other))

    def triggers(self, *names: str) -> dict[str, int]:
        """Declare triggers, once, and return their ids."""
        if names not in self.feeders:
            self.feeders[names] = holder(self.store, *names)
        ids = sorted(self.feeders[names].epochs)
        return dict(zip(names, ids, strict=True))

    def feed(self, items: Iterable[EventItem]) -> None:
        """Append events to the log."""
        (feeder,) = self.feeders.values()
        items = list(items)
        for start in range(0, len(items), 1000):
            feeder.append(*items[start : start + 1000])

    def take_over(self) -> None:
        """Let the feeders of an api that is gone feed this one."""
        for feeder in self.feeders.values():
            feeder.store = self.store

    def runs(self) -> list[RunReport]:
        """Return the last report of each run."""
        with self.store.reading() as connection:
            return last_runs(connection, limit=1_000)


@contextmanager
def running_api(folder: Path, port: int = 0, clock: Callable[[], int] | None = None) -> Iterator[Api]:
    """Serve the real api over a SQLite file in `folder`; `clock` is its wall clock, in µs."""
    store = open_store(sqlite_of(folder), clock=clock, liveness=Liveness(threshold=3_600_000_000))  # the feeder sends no heartbeats
    listener = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(create_app(store, key=KEY), log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield Api(store, listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
        store.close()


def until(condition: Callable[[], bool], what: str, alive: Callable[[], bool] = lambda: True, patience: float = PATIENCE) -> None:
    """Wait for a condition that another thread or process brings about."""
    deadline = time.monotonic() + patience
    while not condition():
        assert alive(), f"it ended before: {what}"
        assert time.monotonic() < deadline, f"never happened: {what}"
        threading.Event().wait(0.05)


def leg(id: str, *firings: int, follows: str | None = None, **payload: Any) -> EventItem:
    """One event that says which it follows."""
    return EventItem(id=id, source="tests", type="leg", payload=json.dumps({"leg": id, **payload}), follows=follows, firings=list(firings))
