"""Two or three real `headrace pipeline` processes that fight for one scope: paused, killed, cut off from the api, or with wrong clocks.

Each has a home and a network of its own; they share the api and the tables. One that loses the scope ends, and is started again.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final, Self
from urllib.parse import urlsplit

from headrace.pipeline.table_storage.object_folder import ObjectFolder
from headrace.pipeline.table_storage.tables import Tables
from support.ordering.feed import causal_feed
from support.pipelines.kills import (
    PHASES,
    SCOPE,
    Family,
    Ledger,
    Sender,
    Shape,
    judged,
    left_of,
    project_of,
    scope_of,
    tables_of,
)
from support.processes.deployment import Deployment, Process, until
from support.processes.network import CALM, Network

FAULTS: Final = ("long pause", "kill", "cut", "short pause", "lost answers", "clock")
FAULTS_IN_BUCKET: Final = tuple(fault for fault in FAULTS if fault != "clock")
"""A service refuses requests of a driver whose clock is wrong, and the driver ends."""
LEASE_SECONDS: Final = 6.0

_PHASE_SECONDS: Final = 8.0
"""How long the rivals wait for the wanted phase of a batch, before the fault comes in any phase."""
_LONGEST: Final = 300.0
_OFFSETS: Final = (3600, -3600, 400 * 86_400, -2 * 86_400, 9, -9)
_POLL_SECONDS: Final = 0.02

_CLOCK: Final = """\
import os
import time

def shifted(clock, unit):
    def now():
        with open(os.environ["RIVAL_CLOCK"]) as file:
            return clock() + int(file.read()) * unit
    return now

time.time = shifted(time.time, 1)
time.time_ns = shifted(time.time_ns, 1_000_000_000)
"""
"""Python runs this when it starts: it moves the wall clock by the seconds in a file. libfaketime breaks `time.sleep` of Python 3.11."""


@dataclass
class Rival:
    """A driver, and the next one where it ended."""

    number: int
    network: Network
    url: str
    clock: Path
    starts: int = 0
    process: Process | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def ended(self) -> bool:
        """Whether its process has ended."""
        return self.process is None or self.process.popen.poll() is not None


class Rivals:
    """The drivers of one deployment, and what happens to them. A context manager."""

    def __init__(
        self, deployment: Deployment, count: int, seed: int, say: Callable[[str], None], bucket: ObjectFolder | None = None
    ) -> None:
        self._deployment = deployment
        self._tables: Tables = bucket or tables_of(deployment)
        self._kinds = FAULTS if bucket is None else FAULTS_IN_BUCKET
        self._project = deployment.project(project_of(bucket))
        self._chance = Random(seed)
        self._say = say
        self._ledger = Ledger(deployment, self._tables)
        self._exits = ExitStack()
        self._count = count
        self._seed = seed
        self._due: list[tuple[float, Callable[[], None]]] = []
        clocks = deployment.folder / "clocks"
        clocks.mkdir()
        (clocks / "sitecustomize.py").write_text(_CLOCK)
        self._clocks = clocks
        self.calm = True
        """Whether no further events are to come for now: the next fault waits until a driver waits for the scope."""
        self.rivals: list[Rival] = []
        self.faults: Counter[str] = Counter()
        self.fenced = 0
        self.takeovers: list[tuple[float, float]] = []
        """Seconds from the kill of the holder until a rival held the scope, and until that one closed a run or planned a batch."""

    def __enter__(self) -> Self:
        port = urlsplit(self._deployment.url).port
        assert port is not None
        for number in range(self._count):
            network = Network(port, self._seed + number)
            url = self._exits.enter_context(network.serving())
            self.rivals.append(Rival(number, network, url, self._clocks / f"{number}"))
            _set_clock(self.rivals[-1].clock, 0)
            self._start(self.rivals[-1])
        return self

    def __exit__(self, *_: object) -> None:
        for rival in self.rivals:
            if not rival.ended():
                Family(rival.pid).send(signal.SIGCONT)
        self._exits.close()

    def fight(self, faults: int, over: Callable[[], bool]) -> None:
        """Let `faults` faults happen, each kind in turn in an order of the seed; each once the drivers have got on since the last one."""
        order: list[str] = []
        while sum(self.faults.values()) < faults and not over():
            order = order or self._chance.sample(self._kinds, len(self._kinds))
            self._befall(order.pop())
            before = self._progress()
            self._until(lambda before=before: over() or self._progress() != before, "the drivers get on")  # type: ignore[misc]
        self.calm = False
        self._until(lambda: not self._due, "the last faults end")

    def peace(self, over: Callable[[], bool]) -> None:
        """Wait until all is done, and let one driver that comes last find it so."""
        while not over():
            before = self._progress()
            self._until(lambda before=before: over() or self._progress() != before, "all is handled")  # type: ignore[misc]
        for rival in self.rivals:
            process = rival.process
            if process is not None and not rival.ended():
                code = process.stop()
                assert code == 0, self._log(process)
        last = self.rivals[0]
        self._start(last)
        self._until(lambda: self._holder() is last, "the last driver has the scope", keep=False)
        assert last.process is not None
        if isinstance(self._tables, Path):
            staging = self._tables / ".staging"
            until(lambda: not list(staging.glob("*/*/*")), "the last driver has removed the drafts of others")
        assert last.process.stop() == 0, self._log(last.process)

    def told(self) -> dict[str, Any]:
        """Return what happened."""
        return {
            "batches": self._ledger.batch(),
            "faults": dict(self.faults),
            "fenced": self.fenced,
            "takeovers": [[round(held, 1), round(went_on, 1)] for held, went_on in self.takeovers],
            "epochs": self._deployment.rows("SELECT epoch FROM scope_leases")[0][0],
        }

    def _befall(self, kind: str) -> None:
        """Let one fault happen: a kill or a long pause to the holder, another to the holder four times of five."""
        wanted = self._chance.choice(PHASES)
        to_holder = self._chance.random() < 0.8 or kind in ("kill", "long pause")
        self.calm = True
        self._until(lambda: self._contended() is not None, "a driver has the scope, and another waits")
        self.calm = False
        limit = time.monotonic() + _PHASE_SECONDS
        while self._ledger.phase() != wanted and time.monotonic() < limit:
            self._keep()
            time.sleep(0.001)
        self._until(lambda: self._contended() is not None, "a driver has the scope, and another waits")
        holder, others = self._contended() or (self.rivals[0], [])
        victim = holder if to_holder or not others else self._chance.choice(others)
        self.faults[kind] += 1
        who = "the holder" if victim is holder else "a waiting driver"
        phase, batch = self._ledger.phase(), self._ledger.batch()
        self._say(f"{sum(self.faults.values())}: {kind} of {who}, rival {victim.number}, {phase!r} in batch {batch}")
        match kind:
            case "long pause":
                self._pause(victim, self._chance.uniform(LEASE_SECONDS + 1.5, LEASE_SECONDS + 4))
            case "short pause":
                self._pause(victim, self._chance.uniform(0.5, LEASE_SECONDS - 2))
            case "kill":
                self._kill(victim, measured=victim is holder)
            case "cut":
                self._network(victim, "drop", self._chance.uniform(1, 10))
            case "lost answers":
                self._network(victim, "lose", self._chance.uniform(1, 5))
            case "clock":
                _set_clock(victim.clock, self._chance.choice(_OFFSETS))
                self._later(self._chance.uniform(3, 15), partial(_set_clock, victim.clock, 0))

    def _contended(self) -> tuple[Rival, list[Rival]] | None:
        """Return the driver that has the scope and those that wait for it, where there are both; none has a fault that lasts."""
        holder = self._holder()
        if holder is None or holder.ended() or not self._is_free(holder):
            return None
        others = [rival for rival in self.rivals if self._waits(rival, holder)]
        return (holder, others) if others else None

    def _pause(self, victim: Rival, seconds: float) -> None:
        family = Family(victim.pid)
        family.send(signal.SIGSTOP)
        self._later(seconds, partial(family.send, signal.SIGCONT), victim)

    def _network(self, victim: Rival, mode: str, seconds: float) -> None:
        victim.network.mode = mode
        self._later(seconds, partial(setattr, victim.network, "mode", CALM), victim)

    def _kill(self, victim: Rival, *, measured: bool) -> None:
        family = Family(victim.pid)
        killed = time.monotonic()
        family.end("all")
        assert victim.process is not None
        victim.process.popen.wait()
        if measured:
            others = [rival for rival in self.rivals if rival is not victim]

            def over() -> bool:
                """Whether the others have ended: an earlier fault had cost them the scope."""
                return all(rival.ended() for rival in others)

            self._until(lambda: self._holder() not in (None, victim) or over(), "a rival takes the scope over", keep=False)
            held, before = time.monotonic(), self._progress()
            self._until(lambda: self._progress() != before or over(), "it goes on", keep=False)
            if over():
                self._start(victim)
                return
            self.takeovers.append((held - killed, time.monotonic() - killed))
            self._say(f"taken over {held - killed:.1f} s after the kill; work after {time.monotonic() - killed:.1f} s")
        self._start(victim)

    def _is_free(self, rival: Rival) -> bool:
        """Whether no fault of it lasts on."""
        return not any(getattr(undo, "rival", None) is rival for _, undo in self._due)

    def _later(self, seconds: float, undo: Callable[[], None], rival: Rival | None = None) -> None:
        self._due.append((time.monotonic() + seconds, _Undo(undo, rival)))

    def _waits(self, rival: Rival, holder: Rival) -> bool:
        """Whether a rival has its session and asks for the scope."""
        if rival is holder or rival.ended() or not self._is_free(rival) or rival.process is None:
            return False
        return "waiting for the scope" in (self._deployment.folder / f"{rival.process.name}.log").read_text()

    def _until(self, condition: Callable[[], bool], what: str, *, keep: bool = True) -> None:
        limit = time.monotonic() + _LONGEST
        while not condition():
            assert time.monotonic() < limit, f"waited {_LONGEST:g} s in vain: {what}"
            self._keep(start=keep)
            time.sleep(_POLL_SECONDS)

    def _keep(self, *, start: bool = True) -> None:
        """End the faults that are due, and start drivers again that have lost the scope, and ended."""
        due = [each for each in self._due if each[0] <= time.monotonic()]
        for each in due:
            self._due.remove(each)
            each[1]()
        for rival in self.rivals if start else ():
            if rival.ended() and self._is_free(rival):
                assert rival.process is not None
                log = self._log(rival.process)
                assert "has ended (lost)" in log or "does not hold the scope" in log, f"rival {rival.number} ended by itself: {log}"
                self.fenced += 1
                self._say(f"rival {rival.number} had lost the scope, ended, and starts again")
                self._start(rival)

    def _start(self, rival: Rival) -> None:
        """Start it with an empty home: that of the driver before is deleted."""
        homes = self._deployment.folder / f"rival-{rival.number}"
        shutil.rmtree(homes, ignore_errors=True)
        home = homes / str(rival.starts)
        home.mkdir(parents=True)
        rival.starts += 1
        environment = {"PYTHONPATH": str(self._clocks), "RIVAL_CLOCK": str(rival.clock)}
        tables = str(self._tables)
        rival.process = self._deployment.pipeline(self._project, environment=environment, home=home, tables=tables, api_url=rival.url)

    def _holder(self) -> Rival | None:
        """Return the rival whose process holds the scope."""
        query = "SELECT pid FROM jobs JOIN scope_leases ON job_id = id WHERE scope = ? AND state = 'running'"
        pids = {row[0] for row in self._deployment.rows(query, SCOPE)}
        return next((rival for rival in self.rivals if rival.process is not None and rival.pid in pids), None)

    def _progress(self) -> tuple[Any, ...]:
        """Return what changes when a plan with events is stored and when a run has its outcome."""
        query = "SELECT (SELECT max(cursor) FROM scopes), (SELECT count(*) FROM planned_runs), (SELECT max(batch) FROM planned_runs)"
        return self._deployment.rows(query)[0]

    def _log(self, process: Process) -> str:
        return (self._deployment.folder / f"{process.name}.log").read_text()[-6000:]


def _set_clock(clock: Path, seconds: int) -> None:
    fresh = clock.with_suffix(".new")
    fresh.write_text(str(seconds))
    fresh.rename(clock)


@dataclass(frozen=True, slots=True)
class _Undo:
    """Ends a fault of a rival."""

    undo: Callable[[], None]
    rival: Rival | None

    def __call__(self) -> None:
        self.undo()


def fight(
    folder: Path, shape: Shape, rivals: int, seed: int, say: Callable[[str], None], bucket: ObjectFolder | None = None
) -> dict[str, Any]:
    """Run rivals that compete for a scope during `shape.kills` faults, check the tables, and return the counts of faults.

    With a `bucket`, the tables are there, in Delta, and its connection is in the environment of this process.
    """
    feed = causal_feed(shape.events, seed)
    say(f"{shape.events:,} events, {len(feed.arrivals):,} sent at first, {len(feed.late):,} later; {rivals} rivals, seed {seed}")
    with ExitStack() as exits:
        deployment = exits.enter_context(Deployment(folder, lookback=shape.lookback))
        if bucket is not None:
            deployment.share_connection(bucket.connection)
        fighting = exits.enter_context(Rivals(deployment, rivals, seed, say, bucket))
        with Sender(deployment, feed, shape.ahead, lambda: not fighting.calm) as sender:

            def over() -> bool:
                return sender.over and not left_of(deployment)

            fighting.fight(shape.kills, over)
            fighting.peace(over)
        told = scope_of(deployment)
        failed = deployment.rows("SELECT error FROM runs WHERE state = 'failed' AND error NOT LIKE '%JVM died%'")
        assert not failed, f"runs are said to have failed: {failed[:3]}"
        happened = fighting.told()
    if fighting.takeovers:
        say(f"takeover: {median(held for held, _ in fighting.takeovers):.1f} s until the scope is held (median)")
    return {"seed": seed, "events": shape.events, **happened, "marks": judged(bucket or folder / "tables", feed, told)}
