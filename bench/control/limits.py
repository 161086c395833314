"""What 100,000 watches in one project cost the store: how long each step takes, and its longest transaction of the writer.

The store's own code in this process, without HTTP. A transaction is timed from its begin, which has the writers' lock, to the end of its
commit: by the clock, and by the processor time of the writer's thread, which others on the machine change little.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import perf_counter, process_time, thread_time
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Connection, event

from headrace.client.declaring import declaration_requests
from headrace.store import Liveness, Store, open_store
from headrace.triggerer.supervisor.held_leases import HeldLeases
from headrace.wire.control.jobs import Heartbeat, RegisterJob
from headrace.wire.control.triggers import DeclaredTrigger, DeclareProject, LoadTriggers, StageTriggers

WATCHES: Final = 100_000
LARGE: Final = 20_000
"""Watches of the one large stream; the others have 1,000 each."""

SECOND: Final = 1_000_000
SILENT: Final = 40 * SECOND


def declaration(watches: int = WATCHES, large: int = LARGE) -> DeclareProject:
    """Return a project of so many watches."""
    return DeclareProject(
        triggers=[
            DeclaredTrigger(
                name=f"watch-{number:06}",
                classpath="headrace.triggers.watch.WatchTrigger",
                kwargs={"upstream": ["headrace.sources.memory.upstream.Memory", {"name": "m"}], "match": {"number": [number]}},
                stream="memory:large" if number < large else f"memory:{number // 1_000}",
            )
            for number in range(watches)
        ],
        pipelines=[],
    )


class Transactions:
    """How long the writer's transactions take."""

    def __init__(self, store: Store) -> None:
        self._began = (0.0, 0.0)
        self._taken: list[tuple[float, float]] = []
        event.listen(store._database._writer._engine, "begin", self._begin)  # noqa: SLF001  no transaction tells how long it was
        store._database.observe_own(self._end)  # noqa: SLF001

    def _begin(self, _: Connection) -> None:
        self._began = (perf_counter(), thread_time())

    def _end(self) -> None:
        clock, own = self._began
        self._taken.append((1_000 * (perf_counter() - clock), 1_000 * (thread_time() - own)))

    def step(self, work: Callable[[], object]) -> dict[str, Any]:
        """Do one step; return what it took."""
        self._taken.clear()
        began, used = perf_counter(), process_time()
        work()
        return {
            "seconds": round(perf_counter() - began, 2),
            "processor_seconds": round(process_time() - used, 2),
            "transactions": len(self._taken),
            "longest_ms": round(max(clock for clock, _ in self._taken), 1),
            "longest_processor_ms": round(max(own for _, own in self._taken), 1),
        }


class Triggerer:
    """A job that loads, and what it knows of its leases."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._holding = HeldLeases()
        self.running: dict[int, int] = {}
        self.registration = uuid4().hex
        asked = RegisterJob(registration_id=self.registration, kind="triggerer", hostname="here", pid=1, project="bench")
        self.job_id = store.jobs.register(asked).id

    def load(self) -> None:
        """Load until there is no more."""
        more = True
        while more:
            loaded = self._store.triggers.load(self.job_id, LoadTriggers(capacity=1_000_000, since=self._holding.revision))
            self._holding.update(loaded)
            more = loaded.more
        due = self._holding.due(self.running)
        self.running.update(self._holding.epochs(due.start))
        for one in due.stop:
            del self.running[one]
        self._holding.done()

    def beat(self) -> None:
        """Say that it lives."""
        self._store.jobs.heartbeat(self.job_id, Heartbeat(leases=False))


def measure(url: str, watches: int = WATCHES) -> dict[str, Any]:
    """Return the figures of one database, which is empty."""
    ticks = 0
    store = open_store(url, liveness=Liveness(ticks=lambda: ticks))
    try:
        transactions = Transactions(store)
        first = Triggerer(store)
        declared = declaration(watches)
        gc.freeze()  # none of the store's
        answer = {"watches": watches, "declare": transactions.step(lambda: _declare(store, first.job_id, declared))}
        answer["claim"] = transactions.step(first.load)
        if len(first.running) != watches:
            raise SystemExit(f"{len(first.running)} watches are claimed.")
        answer["load where nothing changed"] = transactions.step(first.load)
        answer["heartbeat"] = transactions.step(first.beat)
        second = Triggerer(store)
        second.beat()
        ticks += SILENT // 2
        second.beat()
        ticks += SILENT // 2
        second.beat()
        answer["expiry"] = transactions.step(second.beat)
        answer["takeover"] = transactions.step(second.load)
        if len(second.running) != watches:
            raise SystemExit(f"{len(second.running)} watches are taken over.")
        answer["removal"] = transactions.step(
            lambda: store.projects.declare(second.job_id, "bench", DeclareProject(triggers=[], pipelines=[]))
        )
        answer["load after the removal"] = transactions.step(second.load)
        return answer
    finally:
        store.close()


def _declare(store: Store, job_id: int, declared: DeclareProject) -> None:
    whole = declared
    for request in declaration_requests(declared):
        if isinstance(request, StageTriggers):
            store.projects.stage(job_id, request)
        else:
            whole = request
    while not (applied := store.projects.declare(job_id, "bench", whole)).done:
        whole = whole.model_copy(update={"after": applied.after})
