"""Hostile data against a real api and triggerer, beside innocent triggers that must not notice.

Four innocents: a watch and a Python trigger on a queue of their own, a watch on the hostile queue, and a watch on the hostile folder.
"""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

import hostile_producers
import hostile_triggers
import innocent_triggers
from headrace.sources.queue.writer import QueueWriter
from support.hostile import events, files
from support.processes.deployment import Deployment, until

INNOCENTS: Final = ("calm.watch", "calm.trigger", "amid.queue", "amid.folder")
MAX_RESTARTS: Final = 1_000_000
ODD_TRIGGERS: Final = 6

HEAD: Final = """
from headrace import Directory, Project, Queue
from hostile_producers import OddUpstream
from hostile_triggers import Odd
from innocent_triggers import Innocent

project = Project("hostile")
"""


@dataclass
class Shape:
    """How long the soak is calm and then hostile (seconds), how many odd producers it has, and odd things happen each second."""

    calm: float = 30.0
    hostile: float = 1800.0
    producers: int = 40
    each_second: float = 3.0
    patience: float = 420.0


@dataclass
class Soak:
    """One run: the sent inputs, the actions and the result."""

    folder: Path
    shape: Shape
    seed: int
    say: Callable[[str], None]
    sent: int = 0
    amid: int = 0
    lines: int = 0
    done: Counter[str] = field(default_factory=Counter)

    def run(self) -> dict[str, Any]:
        """Run it to its verdict. Raises `AssertionError` with what an innocent trigger lost, got twice or got late."""
        self.chance = random.Random(self.seed)
        self.feed = self.folder / "feed"
        self.feed.mkdir(parents=True)
        self.running = self.folder / "running"
        with Deployment(self.folder) as deployment, self._queues():
            for module in (innocent_triggers, hostile_producers, hostile_triggers):
                shutil.copy(str(module.__file__), self.folder)
            self.deployment = deployment
            self.triggerer = deployment.triggerer(deployment.project(self._project()))
            until(lambda: self._holds_all(), "the triggers run")
            self._innocents_for(self.shape.calm, hostile=False)
            calm = self._latencies(0)
            self.say(f"calm: {_told(calm)}")
            border = self.sent
            self.running.touch()
            self._innocents_for(self.shape.hostile, hostile=True)
            self.say("no more is sent; the innocents have to come to their end")
            self._come_to_the_end()
            hostile = self._latencies(border)
            self.say(f"hostile: {_told(hostile)}")
            return self._verdict(calm, hostile)

    @contextmanager
    def _queues(self) -> Iterator[None]:
        with QueueWriter(self.folder / "calm.q") as self.calm, QueueWriter(self.folder / "odd.q") as self.odd:
            yield

    def _project(self) -> str:
        calm, odd, feed = (repr(str(self.folder / name)) for name in ("calm.q", "odd.q", "feed"))
        lines = [
            HEAD,
            f"calm, odd, feed = Queue({calm}), Queue({odd}), Directory({feed})",
            'project.watch("calm.watch", calm, id="$.id")',
            f'project.trigger("calm.trigger", Innocent(path={calm}))',
            'project.watch("amid.queue", odd, match={"calm": ["yes"]}, id="$.id")',
            'project.watch("amid.folder", feed, match={"calm": ["yes"]}, id="$.id")',
            'project.watch("lines.all", feed, id="$.id", follows="$.follows", subject="$.subject", occurred="$.occurred")',
            'project.watch("lines.kind", feed, match={"kind": ["a", None, 1], "x": [1, "b"]})',
            f'project.trigger("lines.python", Innocent(path={feed}), max_restarts={MAX_RESTARTS})',
        ]
        common = f"running={str(self.running)!r}"
        lines += [
            f'project.trigger("odd.{n}", Odd(path={odd}, name="odd.{n}", {common}), max_restarts={MAX_RESTARTS})'
            for n in range(ODD_TRIGGERS)
        ]
        lines += [
            f'project.trigger("life.{n}", Odd(path={odd}, name="life.{n}", life={life!r}, {common}), max_restarts={MAX_RESTARTS})'
            for n, life in enumerate(hostile_triggers.CONSTRUCTION)
        ]
        self.kinds = self.chance.sample(hostile_producers.KINDS, self.shape.producers)
        lines += [f'project.watch("producer.{n}", OddUpstream({kind!r}, {common}))' for n, kind in enumerate(self.kinds)]
        self.done.update(f"producer: {kind}" for kind in self.kinds)
        return "\n".join(lines) + "\n"

    def _holds_all(self) -> bool:
        rows = self.deployment.rows("SELECT count(*) FROM triggers WHERE state = 'running' AND name IN (?, ?, ?, ?)", *INNOCENTS)
        return bool(rows == [(len(INNOCENTS),)])

    def _innocents_for(self, seconds: float, *, hostile: bool) -> None:
        """Send innocent messages ten times a second, and odd things beside them."""
        end = time.monotonic() + seconds
        debt = 0.0
        minute = time.monotonic() + 60
        while time.monotonic() < end:
            self._send_innocent()
            if hostile:
                debt += self.shape.each_second / 10
                while debt >= 1:
                    debt -= 1
                    self._do_something_odd()
            if time.monotonic() > minute:
                minute += 60
                self.say(f"{self.sent} sent, {sum(self.done.values())} odd things of {len(self.done)} kinds, {self._fired()}")
            time.sleep(0.1)

    def _send_innocent(self) -> None:
        n, self.sent = self.sent, self.sent + 1
        value = {"id": str(n), "n": n, "sent": time.time_ns() // 1000, "calm": "yes"}
        self.calm.send(value)
        self.odd.send({**value, "id": f"q{n}"})
        files.put(self.feed / f"calm-{n}.jsonl", [msgspec.json.encode({**value, "id": f"f{n}"})])

    def _do_something_odd(self) -> None:
        if self.chance.random() < 0.5:
            kind = self.chance.choice(hostile_triggers.BEHAVIOURS)
            to = self.chance.randrange(ODD_TRIGGERS)
            self.done[f"trigger: {kind}"] += 1
            self.odd.send({"to": f"odd.{to}", "do": kind, "number": sum(self.done.values())})
            return
        kinds = [events.choose(self.chance) for _ in range(self.chance.randrange(1, 6))]
        happening = files.choose(self.chance)
        self.done.update(f"line: {kind}" for kind in kinds)
        self.done[f"folder: {happening}"] += 1
        number = sum(self.done.values())
        lines = [events.line(kind, number + n) for n, kind in enumerate(kinds)]
        with suppress(OSError):  # what it does may not be possible twice
            files.FILES[happening](self.feed, lines, number)

    def _fired(self) -> str:
        counts = dict(self.deployment.rows("SELECT name, fired FROM triggers WHERE name IN (?, ?, ?, ?)", *INNOCENTS))
        return ", ".join(f"{name} {counts.get(name, 0)}" for name in INNOCENTS)

    def _events(self) -> Iterator[tuple[str, int, int, int]]:
        """Give for each event of an innocent trigger its name, its number, when it was sent, and when it was stored (µs)."""
        query = (
            "SELECT t.name, e.payload, e.received FROM firings f JOIN events e ON e.seq = f.seq"
            " JOIN triggers t ON t.id = f.trigger_id WHERE t.name IN (?, ?, ?, ?)"
        )
        for name, payload, received in self.deployment.rows(query, *INNOCENTS):
            value = msgspec.json.decode(payload)
            yield name, value["n"], value["sent"], received

    def _latencies(self, since: int) -> dict[str, list[int]]:
        """Return for each innocent trigger how long its events from number `since` on took to be stored (µs), sorted."""
        found: dict[str, list[int]] = {name: [] for name in INNOCENTS}
        for name, n, sent, received in self._events():
            if n >= since:
                found[name].append(received - sent)
        return {name: sorted(times) for name, times in found.items()}

    def _come_to_the_end(self) -> None:
        def all_fired() -> bool:
            with suppress(sqlite3.OperationalError):
                return all(count >= self.sent for count in Counter(name for name, *_ in self._events()).values())
            return False

        until(all_fired, f"the innocents fire on all {self.sent}: {self.folder}", self.shape.patience)

    def _verdict(self, calm: dict[str, list[int]], hostile: dict[str, list[int]]) -> dict[str, Any]:
        found = {name: Counter[int]() for name in INNOCENTS}
        for name, n, *_ in self._events():
            found[name][n] += 1
        for name, counts in found.items():
            missing = sorted(set(range(self.sent)) - counts.keys())
            twice = [n for n, count in counts.items() if count > 1]
            assert not missing, f"{name} misses {len(missing)} of {self.sent}: {missing[:20]}, {self.folder}"
            assert not twice, f"{name} has {len(twice)} twice: {twice[:20]}, {self.folder}"
        api = (self.folder / "api.log").read_text(errors="replace")
        errors = re.findall(r"^.*(?:Traceback|Internal Server Error| 500 ).*$", api, re.MULTILINE)
        assert not errors, f"the api failed {len(errors)} times: {errors[0]}, {self.folder}"
        assert self.triggerer.popen.poll() is None, f"the triggerer ended: {self.folder}"
        (jobs,) = self.deployment.rows("SELECT count(*) FROM jobs WHERE kind = 'triggerer'")
        return {
            "seed": self.seed,
            "sent": self.sent,
            "kinds": len(self.done),
            "odd things": sum(self.done.values()),
            "jobs": jobs[0],
            "dead letters": self.deployment.rows("SELECT count(*) FROM dead_letters")[0][0],
            "calm": {name: _quantiles(times) for name, times in calm.items()},
            "hostile": {name: _quantiles(times) for name, times in hostile.items()},
        }


def _quantiles(times: list[int]) -> dict[str, float]:
    """Return the median, the 99th percentile and the longest (ms)."""
    at = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: round(times[min(len(times) - 1, int(share * len(times)))] / 1000, 1) for name, share in at.items()} if times else {}


def _told(latencies: dict[str, list[int]]) -> str:
    return ", ".join(f"{name} {_quantiles(times)}" for name, times in latencies.items())
