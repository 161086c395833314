"""A scope whose batches are ordered and planned against the real API, without a JVM."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import Any

from headrace.client.pipeline import PipelineClient
from headrace.core.batching import BatchPolicy
from headrace.pipeline.log_reader import LogReader
from headrace.pipeline.ordering.bounds import Bounds
from headrace.pipeline.ordering.orderer import Ordered, Orderer
from headrace.pipeline.runs.run import Run
from headrace.pipeline.runs.slices import Slice
from headrace.pipeline_declaration import OnFailure
from headrace.project import Project
from headrace.wire.calls import execution as calls
from support.processes.calls import acquire_scope

SECOND = 1_000_000
LOOKBACK = 10 * SECOND


class Scope:
    """A scope's batches, one after the other, by any number of drivers; its state is what the plans say."""

    def __init__(self, client: PipelineClient, on_failure: OnFailure = "release", **pipelines: tuple[str, BatchPolicy]) -> None:
        self.client = client
        project = Project("flights")
        for name, (on, batch) in pipelines.items():
            project.pipeline(on=on, name=name, batch=batch, on_failure=on_failure)(lambda events: None)
        self.pipelines = list(project.pipelines.values())
        self.reader = LogReader(self.client, threading.Event(), 50)
        self.max_rows = 20_000
        self.hold("flights")

    def hold(self, scope: str, begin: int | None = 1) -> None:
        """Go on with a scope, or begin a new one."""
        self.lease = acquire_scope(self.client, scope, begin)
        self.state = self.client.state(scope)
        self.start()

    def start(self) -> None:
        """Go on as another driver does."""
        self.orderer = Orderer(self.pipelines, self.reader, self.lease, dict(self.state), lookback=LOOKBACK, max_rows=self.max_rows)

    def next(self, clock: float = 0, idle: Collection[str] = (), returned: Sequence[Run] = ()) -> Ordered:
        """Order all that is new, as far as one batch goes; `idle` are pipelines without an open run, `returned` are runs that failed."""
        news = self.client.request(calls.WAIT_FOR_EVENTS, None)
        at = self.orderer.at
        to = min(news.head, at.seq + self.orderer.max_events)
        ordered = self.orderer.order(
            Bounds(at.seq, to, at.last_redelivery_id, news.last_redelivery_id, 0, int(clock * SECOND)), idle, returned
        )
        self.client.plan(self.lease.scope, ordered.plan)
        for key, value in ordered.plan.state.items():
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value
        self.lease = self.lease.model_copy(update={"cursor": ordered.plan.cursor})
        return ordered

    def told(self, ordered: Ordered) -> list[tuple[str, list[str]]]:
        """Return the runs and their events: the same from memory, and from the log by the stored slice."""
        found = []
        for run, planned in zip(ordered.runs, ordered.plan.runs, strict=True):
            stored = Slice.unpack(ordered.plan.slices[planned.slice])
            events = self.reader.events(stored)
            assert run.events is None or run.events.to_pylist() == events.to_pylist()
            assert (planned.events, planned.first, planned.last) == (len(stored), min(stored.seqs), max(stored.seqs))
            run.events = events
            found.append((run.name, events.column("id").to_pylist()))
        return found


def column(run: Run, name: str) -> list[Any]:
    assert run.events is not None
    return list(run.events.column(name).to_pylist())
