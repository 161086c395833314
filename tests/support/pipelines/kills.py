"""Kill a real `headrace pipeline` repeatedly during its batches, while a feed fills the log of a real API server."""

from __future__ import annotations

import asyncio
import math
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self
from uuid import uuid4

import msgspec
import psutil
import pyarrow.compute as pc
from pyiceberg.table import StaticTable, Table

from headrace.client.triggerer import TriggererClient
from headrace.pipeline.table_storage.object_folder import ObjectFolder
from headrace.pipeline.table_storage.tables import Tables, files_in
from headrace.pipeline.tables.contents import format_of
from headrace.pipeline.tables.delta.log import LOG
from headrace.pipeline.tables.iceberg.catalog import IcebergTables
from headrace.pipeline.tables.iceberg.history import changes_of
from headrace.pipeline.tables.iceberg.maintenance import opened
from headrace.retry import retry_until_available
from headrace.wire.control.jobs import CompleteJob, Heartbeat, Lease
from headrace.wire.custody.events import EventBatch
from support.ordering.feed import CausalFeed, Numbers, causal_feed
from support.ordering.oracle import judge, rows_of
from support.pipelines.bucket_tables import delta_table
from support.pipelines.power_cut_volume import Volume
from support.processes import iceberg_rest
from support.processes.calls import load_triggers
from support.processes.deployment import KEY, Deployment, Process, until
from support.processes.store import declaration, registration

SCOPE: Final = "flights"
PHASES: Final = ("before", "in", "after")
"""Before the sinks' commits of a batch; in them; after them, when the API has not heard of an outcome."""
VICTIMS: Final = ("all", "driver", "jvm")
TABLES: Final = ("legs", "sums")
_SENT_AT_ONCE: Final = 5_000
_LONGEST: Final = 600.0

PROJECT: Final = """\
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headrace import Directory, Project

project = Project("flights")
project.watch("legs.a", Directory("feed", pattern="*.jsonl"), id="$.n")


@project.pipeline(on="legs.*", table="legs", payload="n long")
def legs(events: DataFrame) -> DataFrame:
    return events.select("position", "id", "mark")


@project.pipeline(on="legs.*", table="sums", payload="n long")
def sums(events: DataFrame) -> DataFrame:
    return events.groupBy((fn.col("payload.n") % 4).alias("rest")).agg(fn.count("*").alias("events"), fn.sum("payload.n").alias("n"))


@project.pipeline(on="legs.*", table="totals", key={"rest": "payload.n % 16"}, columns="rest long, events long, n long", payload="n long")
def totals(events: DataFrame, rows: DataFrame) -> DataFrame:
    new = events.select((fn.col("payload.n") % 16).alias("rest"), fn.lit(1).alias("events"), "payload.n")
    return new.unionByName(rows).groupBy("rest").agg(fn.sum("events").alias("events"), fn.sum("n").alias("n"))
"""
MORE_FORMATS: Final = """

@project.pipeline(on="legs.*", table="delta", payload="n long", format="delta")
def delta(events: DataFrame) -> DataFrame:
    return sums(events)


@project.pipeline(on="legs.*", table="ice", payload="n long", format="iceberg")
def ice(events: DataFrame) -> DataFrame:
    return sums(events)


@project.pipeline(
    on="legs.*",
    table="ice_totals",
    format="iceberg",
    key={"rest": "payload.n % 16"},
    columns="rest long, events long, n long",
    payload="n long",
)
def ice_totals(events: DataFrame, rows: DataFrame) -> DataFrame:
    return totals(events, rows)
"""
KEYS: Final = 16


def project_of(bucket: ObjectFolder | None) -> str:
    """Return the project with tables of all formats on a disk, or with tables of Delta in a bucket."""
    return PROJECT + MORE_FORMATS if bucket is None else PROJECT.replace(', payload="n long")', ', format="delta", payload="n long")')


@dataclass(frozen=True, slots=True)
class Shape:
    """How long a run is. `ahead`: how many events the feed is ahead of the pipeline at most; `lookback` in seconds."""

    events: int
    kills: int
    ahead: int
    lookback: float


@dataclass(frozen=True, slots=True)
class Kill:
    """What was killed, in which batch, and where that stood."""

    victim: str
    batch: int
    phase: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the ledger and the tables have of the first batch with an open run."""

    deployment: Deployment
    tables: Tables

    def batch(self) -> int:
        """Return the first batch with an open run, or the last one that was planned."""
        ((first,),) = self.deployment.rows("SELECT min(batch) FROM planned_runs")
        if first is not None:
            return int(first)
        ((last,),) = self.deployment.rows("SELECT max(batch) FROM scopes")
        return int(last or 0)

    def phase(self) -> str:
        """Return where that batch is: one of PHASES, or "between" where no run is open."""
        open_runs = self.deployment.rows("SELECT batch, table_name FROM planned_runs ORDER BY batch, number")
        if not open_runs:
            return "between"
        batch = open_runs[0][0]
        stored = [_has(self.tables / table, batch) for number, table in open_runs if number == batch]
        if all(stored):
            return "after"
        try:
            staged = isinstance(self.tables, Path) and any((self.tables / ".staging").glob(f"*/*/{batch:09d}-*"))
        except FileNotFoundError:  # the driver removed a folder meanwhile: look again
            return self.phase()
        return "in" if staged or any(stored) else "before"


def _has(table: Tables, batch: int) -> bool:
    """Return whether a table has a run of the batch: a file of it, or one of the last commits of Delta or snapshots of Iceberg."""
    if isinstance(table, Path) and format_of(table) == "iceberg":
        iceberg = IcebergTables(table.parent).open(table.name) if iceberg_rest.is_configured() else _committed(table)
        runs = [] if iceberg is None else [change.run for change in changes_of(iceberg)]
        return any(run is not None and run.batch == batch for run in runs)
    if isinstance(table, Path) and not (table / LOG).exists():
        return any(table.glob(f"{batch:09d}-*.parquet"))
    files = files_in(table)
    log = [name for name in files.names(LOG) if name.removesuffix(".json").isdecimal()]
    return any(f'\\"batch\\": {batch},'.encode() in (files.read(f"{LOG}/{name}") or b"") for name in log[-4:])


def _committed(table: Path) -> Table | None:
    """Return the committed version of an Iceberg table, from a copy of its catalog: a paused driver may hold the lock of the catalog."""
    catalog = table.parent / ".iceberg" / "catalog.db"
    with TemporaryDirectory() as folder:
        copy = Path(folder) / catalog.name
        for suffix in ("", "-journal"):  # SQLite rolls a commit back that is not complete
            with suppress(FileNotFoundError):
                shutil.copy(f"{catalog}{suffix}", f"{copy}{suffix}")
        try:
            with closing(sqlite3.connect(copy)) as database:
                row = database.execute("SELECT metadata_location FROM iceberg_tables WHERE table_name = ?", (table.name,)).fetchone()
            return None if row is None else StaticTable.from_metadata(row[0])
        except (sqlite3.Error, FileNotFoundError):  # the driver wrote meanwhile: a paused one is looked at again
            return None


def tables_of(deployment: Deployment) -> Path:
    """Return the folder of the tables, which all drivers share."""
    return deployment.folder / "tables"


class Sender:
    """Sends the feed through the api, in a thread, while `may_send()`. A context manager that waits for its end."""

    def __init__(self, deployment: Deployment, feed: CausalFeed, ahead: int, may_send: Callable[[], bool] = lambda: True) -> None:
        self._deployment = deployment
        self._may_send = may_send
        self._feed = feed
        self._ahead = ahead
        self._left = threading.Event()
        self._pool = ThreadPoolExecutor(1, "sender")
        self._place = deployment.folder / "sent"  # how much of the feed was sent, for a run that goes on

    def __enter__(self) -> Self:
        self._sending = self._pool.submit(lambda: asyncio.run(self._send()))
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._pool.shutdown()

    @property
    def over(self) -> bool:
        """Whether all was sent; raises what went wrong."""
        return self._sending.done() and self._sending.result() is None

    async def _send(self) -> None:
        async with TriggererClient(self._deployment.url, key=KEY) as client:
            job = await client.register(registration(registration_id=uuid4().hex, hostname="sender"))
            await client.declare(SCOPE, declaration("legs.a"))
            (lease,) = (await load_triggers(client, 10)).leases
            beating = asyncio.create_task(_beat(client, job.heartbeat))
            try:
                await self._store(client, lease, self._feed.arrivals)
                await self._until(lambda: not left_of(self._deployment))  # whoever comes now is late
                await self._store(client, lease, self._feed.late, len(self._feed.arrivals))
            finally:
                beating.cancel()
                await client.complete(CompleteJob(state="succeeded"))  # so that the next run of the sender gets the lease at once

    async def _store(self, client: TriggererClient, lease: Lease, numbers: Numbers, before: int = 0) -> None:
        """Send what was not sent yet; `before`: how many come before these in the feed."""
        done = int(self._place.read_text()) if self._place.exists() else 0
        for events in self._feed.batches(numbers[max(0, done - before) :], min(_SENT_AT_ONCE, self._ahead), lease.trigger_id):
            await self._until(lambda: self._may_send() and left_of(self._deployment) < self._ahead)
            batch = EventBatch.model_construct(epochs={lease.trigger_id: lease.epoch}, events=events)
            await retry_until_available(partial(client.store, batch), "batch")
            done = max(done, before) + len(events)
            self._place.write_text(str(done))

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._left.is_set():
                raise asyncio.CancelledError
            await asyncio.sleep(0.05)


async def _beat(client: TriggererClient, interval: float) -> None:
    while True:
        await retry_until_available(lambda: client.heartbeat(Heartbeat()), "heartbeat")
        await asyncio.sleep(interval)


def scope_of(deployment: Deployment) -> dict[str, int]:
    """Return the stored cursor of the scope and its counts of events."""
    names = ("cursor", "waiting", "lost", "late", "cycles")
    rows = deployment.rows(f"SELECT {', '.join(names)} FROM scopes")
    return dict(zip(names, rows[0] if rows else [0] * len(names), strict=True))


def left_of(deployment: Deployment) -> int:
    """Return how many events of the log were not handled yet, and how many wait."""
    ((head,),) = deployment.rows("SELECT coalesce(max(seq), 0) FROM events")
    ((open_events,),) = deployment.rows("SELECT coalesce(sum(events), 0) FROM planned_runs")
    scope = scope_of(deployment)
    return int(head) - scope["cursor"] + scope["waiting"] + int(open_events)


class Family:
    """A driver and its JVM, once that is there."""

    def __init__(self, pid: int) -> None:
        self._driver = psutil.Process(pid)
        self._jvm = until(self._java, "the driver has started its JVM")[0]

    def send(self, number: signal.Signals) -> None:
        self._driver.send_signal(number)
        self._jvm.send_signal(number)

    def end(self, victim: str) -> None:
        """End both or one of them, where they stand still, as a crash would; wait until all that they started is gone."""
        known = [self._driver, *self._driver.children(recursive=True)]
        for process, name in ((self._driver, "driver"), (self._jvm, "jvm")):
            process.send_signal(signal.SIGKILL if victim in {"all", name} else signal.SIGCONT)
        _, left = psutil.wait_procs(known, timeout=60)
        assert not left, f"still there a minute after the end of {victim}: {left}"

    def _java(self) -> list[psutil.Process]:
        name = "org.apache.spark.deploy.SparkSubmit"
        processes = psutil.process_iter(["ppid", "cmdline"])  # unlike children(), it does not mind one that just ended
        return [each for each in processes if each.info["ppid"] == self._driver.pid and name in (each.info["cmdline"] or ())]


class Killing:
    """Runs the pipeline of a deployment, and kills it where a seed says, the rarest phase first."""

    def __init__(
        self,
        deployment: Deployment,
        seed: int,
        say: Callable[[str], None],
        volume: Volume | None = None,
        bucket: ObjectFolder | None = None,
    ) -> None:
        self._deployment = deployment
        self._volume = volume
        self._tables: Tables = bucket or tables_of(deployment)
        self.files_cut = 0
        self._project = deployment.project(project_of(bucket))
        self._seed = seed
        self._say = say
        self._ledger = Ledger(deployment, self._tables)
        self._process: Process | None = None
        self._book = deployment.folder / "kills.json"
        self.kills = msgspec.json.decode(self._book.read_bytes(), type=list[Kill]) if self._book.exists() else []

    def told(self) -> dict[str, Any]:
        """Return how many batches there were, and what was killed in which phase."""
        victims = Counter(kill.victim for kill in self.kills)
        return {"batches": self._ledger.batch(), "kills": len(self.kills), "phases": self.phases, "victims": dict(victims)}

    @property
    def phases(self) -> dict[str, int]:
        """How often each phase was hit."""
        counts = Counter(kill.phase for kill in self.kills)
        return {phase: counts[phase] for phase in PHASES}

    def start(self) -> None:
        """Start the pipeline with an empty home: that of the driver before is deleted."""
        homes = self._deployment.folder / "drivers"
        shutil.rmtree(homes, ignore_errors=True)
        home = homes / str(len(self.kills))
        home.mkdir(parents=True)
        self._process = self._deployment.pipeline(self._project, home=home, tables=str(self._tables))

    def kill(self, over: Callable[[], bool]) -> bool:
        """Kill it once in a phase that was hit the least, and start it again; False if nothing was left to be done before that."""
        process = self._running()
        chance = random.Random(f"{self._seed}/{len(self.kills)}")
        least = min(self.phases[phase] for phase in PHASES)
        rarest = [phase for phase in PHASES if self.phases[phase] == least]
        wanted = "in" if "in" in rarest else chance.choice(rarest)  # the shortest phase first: it needs the most batches to be hit
        # The other half would finish what is nearly done, and a power cut spares neither.
        victim = chance.choice(VICTIMS) if wanted == "before" and self._volume is None else "all"
        first = self._ledger.batch() + chance.randint(0, 2)
        deadline = time.monotonic() + _LONGEST
        family = Family(process.popen.pid)
        # The driver would leave a phase before reads from a bucket or a catalog show it.
        reads_are_slow = not isinstance(self._tables, Path) or iceberg_rest.is_configured()
        longest = 0.002 if wanted == "in" else 0.02  # seconds between two looks: "in" is the shortest phase
        is_first_over = False
        while True:
            self._check(process, deadline)
            is_first_over = is_first_over or self._ledger.batch() >= first
            if is_first_over and (reads_are_slow or self._ledger.phase() == wanted):
                family.send(signal.SIGSTOP)
                if self._ledger.phase() == wanted:
                    break
                family.send(signal.SIGCONT)
            if over():
                return False
            time.sleep(chance.uniform(0.0005, longest) if reads_are_slow else 0.0005)
        self.kills.append(Kill(victim, self._ledger.batch(), wanted))
        self._book.write_bytes(msgspec.json.encode(self.kills))
        family.end(victim)
        process.popen.wait()
        self._say(f"kill {len(self.kills)}: {victim}, {wanted} the commit of batch {self.kills[-1].batch}")
        if self._volume is not None:
            cut = self._volume.cut()
            self.files_cut += len(cut)
            self._say(f"power cut: {len(cut)} files lost or shortened")
        self.start()
        return True

    def finish(self, over: Callable[[], bool]) -> None:
        """Let it come to the end of the log, and end it well."""
        process = self._running()
        deadline = time.monotonic() + _LONGEST
        while not over():
            self._check(process, deadline)
            time.sleep(0.05)
        assert process.stop() == 0, self._log(process)

    def _running(self) -> Process:
        assert self._process is not None, "it was not started"
        return self._process

    def _check(self, process: Process, deadline: float) -> None:
        assert process.popen.poll() is None, f"the pipeline ended by itself: {self._log(process)}"
        assert time.monotonic() < deadline, f"waited {_LONGEST:g} s in vain: batch {self._ledger.batch()} is {self._ledger.phase()!r}"

    def _log(self, process: Process) -> str:
        return (self._deployment.folder / f"{process.name}.log").read_text()[-3000:]


def soak(
    folder: Path,
    shape: Shape,
    seed: int,
    say: Callable[[str], None],
    seconds: float = math.inf,
    volume: Volume | None = None,
    bucket: ObjectFolder | None = None,
) -> dict[str, Any] | None:
    """Run a pipeline through its kills, judge its tables, and return what happened.

    None: it was not done within `seconds`; it goes on where it is when it is called again with the same folder. With a `volume`, which
    has the tables, the power of that is cut at each kill. With a `bucket`, the tables are there, in Delta, and its connection is in the
    environment of this process. A catalog in the environment has the Iceberg tables.
    """
    deadline = time.monotonic() + seconds
    feed = causal_feed(shape.events, seed)
    say(f"{shape.events:,} events, {len(feed.arrivals):,} sent at first, {len(feed.late):,} later")
    with Deployment(folder, lookback=shape.lookback) as deployment:
        if bucket is not None:
            deployment.share_connection(bucket.connection)
        killing = Killing(deployment, seed, say, volume, bucket)
        killing.start()
        with Sender(deployment, feed, shape.ahead) as sender:

            def over() -> bool:
                return time.monotonic() > deadline or (sender.over and not left_of(deployment))

            while len(killing.kills) < shape.kills and killing.kill(over):
                pass
            killing.finish(over)
            if not sender.over or left_of(deployment):
                return None
        told = scope_of(deployment)
        failed = deployment.rows("SELECT error FROM runs WHERE state = 'failed' AND error NOT LIKE '%JVM died%'")
        assert not failed, "a run was said to have failed, for it was killed"
    cut = {} if volume is None else {"files_cut": killing.files_cut}
    return {"seed": seed, "events": shape.events, **killing.told(), **cut, "marks": judged(bucket or folder / "tables", feed, told)}


def judged(tables: Tables, feed: CausalFeed, told: dict[str, int]) -> dict[str, int]:
    """Compare the tables with the feed, and with what the scope told; return how many events bear which mark."""
    if isinstance(tables, Path):
        legs, sums = rows_of(tables / "legs"), rows_of(tables / "sums")
        ice, ice_totals = (opened(tables / name).scan().to_arrow() for name in ("ice", "ice_totals"))
        appended, keyed = [sums, delta_table(tables / "delta").to_pyarrow_table(), ice], [ice_totals]
    else:
        legs, sums = (delta_table(tables / name).to_pyarrow_table() for name in TABLES)
        legs = legs.sort_by("position")  # files have no order
        appended, keyed = [sums], []
    keyed.append(delta_table(tables / "totals").to_pyarrow_table())
    marks = judge(feed, legs)
    for table in appended + keyed:
        assert pc.sum(table.column("events")).as_py() == feed.count
        assert pc.sum(table.column("n")).as_py() == feed.count * (feed.count - 1) // 2
    for table in keyed:
        assert sorted(table.column("rest").to_pylist()) == list(range(KEYS))
    assert told["lost"] == marks.get("lost", 0)
    assert told["late"] >= marks.get("late", 0)  # one that came late and was lost itself bears that mark
    if isinstance(tables, Path):
        assert not list((tables / ".staging").glob("*/*/*")), "something was left in the staging folder"
    return marks
