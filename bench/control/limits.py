"""Measure the store with 100,000 watches in one project: the duration of each step and of its longest transaction.

The benchmark runs the code of the store in this process, without HTTP. It measures a transaction from its begin, which acquires the
writers' lock, to the end of its commit. It reports wall time and the processor time of the writer's thread, which depends little on
other load of the machine.
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
"""Watches of the large stream. Each other stream has 1,000."""

SECOND: Final = 1_000_000
PAUSE_TICKS: Final = 40 * SECOND


def declaration(watches: int = WATCHES, large: int = LARGE) -> DeclareProject:
    """Return a project with `watches` watches, `large` of them on one stream."""
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
    """Measures the durations of the writer's transactions."""

    def __init__(self, store: Store) -> None:
        self._began = (0.0, 0.0)
        self._taken: list[tuple[float, float]] = []
        event.listen(store._database._writer._engine, "begin", self._begin)  # noqa: SLF001  transactions do not report their duration
        store._database.observe_own(self._end)  # noqa: SLF001

    def _begin(self, _: Connection) -> None:
        self._began = (perf_counter(), thread_time())

    def _end(self) -> None:
        clock, own = self._began
        self._taken.append((1_000 * (perf_counter() - clock), 1_000 * (thread_time() - own)))

    def step(self, work: Callable[[], object]) -> dict[str, Any]:
        """Execute one step; return its duration and that of its longest transaction."""
        self._taken.clear()
        began, used = perf_counter(), process_time()
        work()
        return {
            "seconds": round(perf_counter() - began, 2),
            "processor_seconds": round(process_time() - used, 2),
            "transactions": len(self._taken),
            "max_transaction_ms": round(max(clock for clock, _ in self._taken), 1),
            "max_transaction_processor_ms": round(max(own for _, own in self._taken), 1),
        }


class Triggerer:
    """A triggerer's job that loads triggers, with its copy of its leases."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._holding = HeldLeases()
        self.running: dict[int, int] = {}
        self.registration = uuid4().hex
        request = RegisterJob(registration_id=self.registration, kind="triggerer", hostname="here", pid=1, project="bench")
        self.job_id = store.jobs.register(request).id

    def load(self) -> None:
        """Load triggers until the store has no more for this job."""
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
        """Send a heartbeat."""
        self._store.jobs.heartbeat(self.job_id, Heartbeat(leases=False))


def measure(url: str, watches: int = WATCHES) -> dict[str, Any]:
    """Return the figures of one empty database."""
    ticks = 0
    store = open_store(url, liveness=Liveness(ticks=lambda: ticks))
    try:
        transactions = Transactions(store)
        first = Triggerer(store)
        declared = declaration(watches)
        gc.freeze()  # the declaration does not belong to the store
        answer = {"watches": watches, "declare": transactions.step(lambda: _declare(store, first.job_id, declared))}
        answer["claim"] = transactions.step(first.load)
        if len(first.running) != watches:
            raise SystemExit(f"{len(first.running)} watches are claimed, not {watches}.")
        answer["load without a change"] = transactions.step(first.load)
        answer["heartbeat"] = transactions.step(first.beat)
        second = Triggerer(store)
        second.beat()
        ticks += PAUSE_TICKS // 2
        second.beat()
        ticks += PAUSE_TICKS // 2
        second.beat()
        answer["expiry"] = transactions.step(second.beat)
        answer["takeover"] = transactions.step(second.load)
        if len(second.running) != watches:
            raise SystemExit(f"{len(second.running)} watches are taken over, not {watches}.")
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
