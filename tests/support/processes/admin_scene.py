"""A real api on a real SQLite store, on a free port of this machine, and a small flights scene sent through the execution API's clients."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvicorn

from headrace.api.app import create_app
from headrace.api.server import Server
from headrace.client.admin.client import AdminClient
from headrace.client.pipeline import PipelineClient
from headrace.client.triggerer import TriggererClient
from headrace.core.ledger.counters import StreamCounters
from headrace.store import Liveness, Store, open_store
from headrace.store.control.jobs import SECOND
from headrace.wire.calls import admin as calls
from headrace.wire.control.jobs import Blocked, Heartbeat, RegisterJob
from headrace.wire.control.streams import LaneReport, RetryReport, StreamReport
from headrace.wire.control.triggers import DeclaredPipeline, DeclaredTrigger, DeclareProject, TriggerFailure
from headrace.wire.custody.backlog import Settled, SpillItem
from headrace.wire.custody.dead_letters import DeadLetterSelection
from headrace.wire.custody.events import Cursor, DeadLetterItem, EventBatch, EventItem
from headrace.wire.pipelines.plans import PositionBlock
from headrace.wire.pipelines.runs import RunReport
from support.pipelines.plans import plan_next
from support.processes.calls import get_backlog, load_triggers, report_failure, settle_backlog
from support.processes.store import sqlite_of

KEY = "a deployment key for tests"
PROJECT = "flights"
STREAM = "directory:feed/*.jsonl"
WATCHES = ("legs.american", "legs.delta", "legs.united", "legs.late")


@contextmanager
def opened(folder: Path) -> Iterator[Store]:
    """Give a new store in `folder`."""
    store = open_store(sqlite_of(folder), liveness=Liveness(600 * SECOND))  # the scene has no heartbeats of its own
    try:
        yield store
    finally:
        store.close()


@contextmanager
def serving(store: Store, port: int = 0, *, logs: Path | None = None) -> Iterator[str]:
    """Serve the api over `store` from a thread of its own; gives its URL. The socket listens already: nobody needs to wait."""
    listener = socket.create_server(("127.0.0.1", port))
    app = create_app(store, key=KEY, logs=logs)
    server = Server(app, uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="api")
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@dataclass
class Scene:
    """A triggerer and a pipeline that are registered at the api at `url`, with the leases that the triggerer holds."""

    url: str
    triggerer: TriggererClient
    pipeline: PipelineClient
    triggers: dict[str, int]
    epochs: dict[int, int]

    async def store(self, *events: EventItem, letters: Sequence[DeadLetterItem] = ()) -> None:
        """Store events and dead letters, all of which must be accepted."""
        answer = await self.triggerer.store(EventBatch(epochs=self.epochs, events=list(events), dead_letters=list(letters)))
        assert {*answer.events, *answer.dead_letters} <= {"stored"}

    def leg(
        self, number: int, *, watch: str = "legs.united", tail: str = "N14228", follows: str | None = None, note: str = "on time"
    ) -> EventItem:
        """Return one leg of a flight."""
        return EventItem(
            id=f"2013-01-01/{tail}/{number}",
            source=f"headrace:{STREAM}",
            type="flights.leg",
            subject=tail,
            occurred=datetime.now(UTC) - timedelta(minutes=90 - number),
            follows=follows,
            payload=f'{{"flight": {1500 + number}, "dep_delay": {number * 3 % 47}, "big": 12345678901234567890, "note": "{note}"}}',
            stream=STREAM,
            lane="2013-01-01.jsonl",
            position=number * 211,
            firings=[self.triggers[watch]],
        )

    def letter(self, number: int, reason: str) -> DeadLetterItem:
        """Return a raw event that could not become an event."""
        return DeadLetterItem(
            id=f"{STREAM}/2013-01-01.jsonl/{number}",
            kind="malformed" if number % 2 else "missing_field",
            reason=reason,
            stream=STREAM,
            lane="2013-01-01.jsonl",
            position=number,
            raw='{"carrier": "UA", "flight": ',
            triggers=[self.triggers["legs.united"]],
        )

    async def beat(
        self,
        *,
        read: int,
        advanced: int,
        end: int | None = None,
        oldest: float | None = None,
        held_by: str | None = None,
        error: str | None = None,
        retrying: Sequence[RetryReport] = (),
    ) -> None:
        """Report the stream as a triggerer does with its heartbeat."""
        lanes = [
            LaneReport(lane="2013-01-01.jsonl", read=81_204, advanced=81_204, end=81_204),
            LaneReport(lane="2013-01-02.jsonl", read=60_871, advanced=52_310, end=end or 90_118, outstanding=read - advanced, error=error),
        ]
        report = StreamReport(
            stream=STREAM,
            state="polling",
            counters=StreamCounters(
                read=read,
                advanced=advanced,
                filtered=read // 3,
                spilled=3,
                resolved=advanced,
                ack_seconds=advanced / 4,
                advances=8,
                advance_errors=4 if error else 0,
                advance_seconds=0.2,
            ),
            outstanding=read - advanced,
            lanes_open=2,
            lanes=lanes,
            oldest_unresolved=oldest,
            held_by=held_by,
            lanes_retrying=len(retrying),
            retrying=list(retrying),
            in_flight=1,
        )
        await self.triggerer.heartbeat(Heartbeat(streams=[report]))

    async def spill(self, count: int, *, watch: str) -> None:
        """Spill a number of raw events to the backlog of a trigger."""
        spills = [
            SpillItem(stream=STREAM, lane="2013-01-02.jsonl", position=n, raw="{}", triggers=[self.triggers[watch]]) for n in range(count)
        ]
        answer = await self.triggerer.store(EventBatch(epochs=self.epochs, spills=spills))
        assert answer.spills == ["stored"] * count

    async def settle(self, *, watch: str) -> None:
        """Settle the backlog of a trigger."""
        trigger = self.triggers[watch]
        items = (await get_backlog(self.triggerer, trigger, 0, 100)).items
        settled = [Settled(number=item.number, answer="filtered") for item in items]
        await settle_backlog(self.triggerer, trigger, self.epochs[trigger], settled)

    async def discard_all(self) -> None:
        """Discard every open dead letter."""
        with AdminClient(self.url) as admin:
            await asyncio.to_thread(admin.request, calls.DISCARD_DEAD_LETTERS, DeadLetterSelection(select_all=True), credential=KEY)

    async def plan(
        self, cursor: Cursor, scope: str = PROJECT, *, run_of: str | None = None, positions: Sequence[PositionBlock] = ()
    ) -> None:
        """Store the next plan of a scope, with a run of the pipeline `run_of`."""
        await asyncio.to_thread(plan_next, self.pipeline, scope, cursor, run_of=run_of, positions=positions)

    async def report(self, *runs: RunReport) -> None:
        """Report runs."""
        await asyncio.to_thread(self.pipeline.report, runs)

    async def fail(self, watch: str, message: str, *, times: int = 6) -> None:
        """Report that a trigger failed, so often that it does not start again before the test has looked."""
        trigger = self.triggers[watch]
        failure = TriggerFailure(epoch=self.epochs[trigger], type="ConnectionError", message=message)
        for _ in range(times):
            await report_failure(self.triggerer, trigger, failure)

    async def block(self, watch: str, seconds: float, *stack: str) -> None:
        """Say with a heartbeat that a trigger blocks its triggerer."""
        blocked = Blocked(trigger_id=self.triggers[watch], trigger=watch, seconds=seconds, stack=list(stack))
        await self.triggerer.heartbeat(Heartbeat(blocked=blocked))


def run(
    number: int, *, pipeline: str = "knock_on_delay", state: str = "succeeded", rows: int | None = 40, error: str | None = None
) -> RunReport:
    """Return the report of one run."""
    started = datetime.now(UTC) - timedelta(seconds=400 - number * 9)
    return RunReport.model_validate(
        {
            "run_id": f"{PROJECT}/{pipeline}/{number}",
            "pipeline": pipeline,
            "scope": PROJECT,
            "batch": number,
            "state": state,
            "started": started,
            "finished": None if state == "running" else started + timedelta(seconds=0.4 + number / 7),
            "events": 60 + number,
            "rows": rows,
            "seqs": [(1, 60 + number)],
            "error": error,
        }
    )


@asynccontextmanager
async def at_work(url: str, *, log_url: str | None = None) -> AsyncIterator[Scene]:
    """Register a triggerer and a pipeline at the api and declare the project; gives the scene."""
    async with TriggererClient(url, key=KEY) as triggerer:
        await triggerer.register(
            RegisterJob(registration_id="triggerer-1", kind="triggerer", hostname="wheel-1", pid=4711, project=PROJECT, log_url=log_url)
        )
        declared = DeclareProject(
            triggers=[
                DeclaredTrigger(name=name, classpath="headrace.triggers.watch.WatchTrigger", kwargs={}, stream=STREAM) for name in WATCHES
            ],
            pipelines=[
                DeclaredPipeline(name="knock_on_delay", on=["legs.*"], table="knock_on_delay"),
                DeclaredPipeline(name="late_legs", on=["legs.late"], table="late_legs"),
            ],
        )
        triggers = (await triggerer.declare(PROJECT, declared)).triggers
        loaded = await load_triggers(triggerer, 100)
        with PipelineClient(url, key=KEY) as pipeline:
            job = RegisterJob(registration_id="pipeline-1", kind="pipeline", hostname="wheel-1", pid=4712, project=PROJECT, log_url=log_url)
            await asyncio.to_thread(pipeline.register, job)
            yield Scene(url, triggerer, pipeline, triggers, {lease.trigger_id: lease.epoch for lease in loaded.leases})
