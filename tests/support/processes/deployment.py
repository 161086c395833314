"""A deployment of real processes for the scenarios: an api, triggerers, a queue, an api that is in trouble, and the oracle that judges."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self, TypeVar
from uuid import uuid4

import httpx
import msgspec
import uvicorn

from headrace.client.admin.client import AdminClient
from headrace.process.child import LIFELINE, REGISTRATION, REPLACES
from headrace.sources.queue.upstream import Queue
from headrace.sources.queue.writer import QueueWriter
from headrace.triggers.upstream import Upstream
from headrace.wire.calls import admin as calls
from support.processes import forked
from support.processes.broker_server import connection_variable
from support.processes.command_line import COMMAND_SECONDS, CommandResult, run_command
from support.processes.forked import INTERPRETER_VARIABLES, ForkedProcess
from support.processes.ports import free_port

T = TypeVar("T")

KEY = "a deployment key for scenarios"
PATIENCE = 90.0
GRACE = 40.0
SHORT_LEASE_SECONDS = 5.0
FORKED = frozenset({"api", "triggerer", "worker"})
"""The commands that are forked. A pipeline starts a JVM, which takes longer than its imports."""
TRIGGERS = Path(__file__).parents[1] / "projects" / "scenario_triggers.py"


@cache
def lifeline() -> int:
    """Return the reading end of a pipe that only this process can write to: `headrace` processes end when it does, however it went.

    One that is stopped at that moment sees it when it goes on.
    """
    reading, _ = os.pipe()
    return reading


def until(condition: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    """Repeat until a condition of another process is true, and return its value. Fail after `patience` seconds."""
    limit = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < limit, f"waited {patience:g} s in vain: {what}"
        time.sleep(0.05)
    return value


def start_process(arguments: Sequence[str], output: Path, environment: Mapping[str, str], folder: Path) -> subprocess.Popen[bytes]:
    """Start `headrace` in a session of its own. Its output is appended to a file."""
    with output.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "headrace", *arguments],
            stdin=lifeline(),
            stdout=log,
            stderr=log,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )


@dataclass
class Process:
    """A process of ours."""

    name: str
    popen: subprocess.Popen[bytes] | ForkedProcess
    registration: str = ""

    @property
    def pid(self) -> int:
        return self.popen.pid

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def stop(self) -> int:
        """End it as a person would, and return its exit code."""
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.terminate()
            try:
                self.popen.wait(GRACE)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
                return -signal.SIGKILL
        return self.popen.wait()


class Deployment:
    """An api on a port of its own, and triggerers that a test starts, kills and stops. A context manager."""

    def __init__(self, folder: Path, **settings: float) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.database = folder / "home" / "headrace.db"
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")} | {
            "HEADRACE_HOME": str(folder / "home"),
            "HEADRACE_PORT": str(port),
            "HEADRACE_KEY": KEY,
            "HEADRACE_API_URL": self.url,
            "PYTHONUNBUFFERED": "1",
            "HEADRACE_RETRY_WAIT": "2",
            **{f"HEADRACE_{name.upper()}": str(value) for name, value in settings.items()},
        }
        self._processes: list[Process] = []
        self._exits = ExitStack()
        # One client for all requests, without certificate authorities: to load them takes longer than most requests.
        self._http = self._exits.enter_context(httpx.Client(base_url=self.url, timeout=60, trust_env=False, verify=False))
        shutil.copy(TRIGGERS, folder / TRIGGERS.name)

    @classmethod
    def with_short_leases(cls, folder: Path) -> Self:
        """Return a deployment in which a killed triggerer is replaced after SHORT_LEASE_SECONDS."""
        return cls(folder, job_timeout=SHORT_LEASE_SECONDS)

    def __enter__(self) -> Self:
        self.start_api()
        return self

    def start_api(self) -> None:
        """Start the api; return once it answers."""
        self.api = self._start("api", {}, "api")
        until(self._answers, "the api answers", 60)

    def stop_api(self) -> None:
        """End the api as a person would."""
        self.api.stop()

    def __exit__(self, *_: object) -> None:
        # The triggerers before the api: what they still have to say should be heard.
        for process in reversed(self._processes):
            process.stop()
        self._exits.close()

    def triggerer(self, project: Path, *, url: str | None = None, replaces: Process | None = None) -> Process:
        """Start a triggerer on a project file; `url`: another way to the api; `replaces`: one that is known to be dead."""
        more = {"HEADRACE_PROJECT": str(project), "SCENARIO_TRIGGERER": "1", REGISTRATION: uuid4().hex}
        if url is not None:
            more["HEADRACE_API_URL"] = url
        if replaces is not None:
            more[REPLACES] = replaces.registration
        return self._start(f"triggerer-{len(self._processes)}", more, "triggerer")

    def pipeline(self, project: Path, *, environment: Mapping[str, str] | None = None, **settings: Path | str) -> Process:
        """Start a pipeline on a project file; `settings` are further ones, such as `home`, and `environment` is further environment."""
        more = {f"HEADRACE_{name.upper()}": str(value) for name, value in settings.items()} | dict(environment or {})
        return self._start(
            f"pipeline-{len(self._processes)}", {"HEADRACE_PROJECT": str(project), "HEADRACE_MASTER": "local[2]", **more}, "pipeline"
        )

    def cli(self, *arguments: str, seconds: float = COMMAND_SECONDS) -> CommandResult:
        """Run a command to its end, for up to this time."""
        return run_command(arguments, Path.cwd(), self._environment, seconds=seconds)

    def project(self, text: str, name: str = "project.py") -> Path:
        """Write a project file."""
        path = self.folder / name
        path.write_text(text)
        return path

    def metrics(self) -> str:
        """Return the metrics in Prometheus' text format."""
        return self._http.get("/metrics").text

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Ask the database behind the api's back."""
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=20)) as connection:
            return connection.execute(query, values).fetchall()

    def share_connection(self, name: str) -> None:
        """Give a connection of this process to those that start from now on."""
        variable = connection_variable(name)
        self._environment[variable] = os.environ[variable]

    def count_events(self) -> int:
        """Return the number of events in the event log."""
        return int(self.rows("SELECT count(*) FROM events")[0][0])

    def wait_for_more_events(self, than: int) -> None:
        """Wait until the event log has more events than this."""
        until(lambda: self.count_events() > than, f"there are more than {than} events, {self.folder}")

    def wait_for_status(self, text: str) -> None:
        """Wait until the status has a text, such as the problem of a stream."""
        with self.admin() as client:
            until(lambda: text in str(client.get(calls.GET_STATUS)), f"the status has {text!r}, {self.folder}")

    def audited_stream(self) -> Any:
        """Return the audit of the only stream. Wait for its first receipt, which is stored after the events that it counts."""
        streams: list[Any] = []
        with self.admin() as client:

            def has_streams() -> bool:
                streams[:] = client.get(calls.GET_AUDIT)["streams"]
                return bool(streams)

            until(has_streams, f"the audit has a stream, {self.folder}")
        (stream,) = streams
        return stream

    def balanced_stream(self) -> Any:
        """Return the audit of the only stream, which has no problem, and whose triggers are balanced."""
        stream = self.audited_stream()
        assert stream["problems"] == []
        assert all(trigger["balanced"] for trigger in stream["triggers"]), stream["triggers"]
        return stream

    def admin(self) -> AdminClient:
        return AdminClient(self.url)

    def _start(self, name: str, more: Mapping[str, str], *arguments: str) -> Process:
        environment, log = {**self._environment, LIFELINE: "stdin", **more}, self.folder / f"{name}.log"
        log.touch()  # a fork opens it once it has been forked, and a test may read it before
        popen: subprocess.Popen[bytes] | ForkedProcess
        if arguments[0] in FORKED and environment.keys().isdisjoint(INTERPRETER_VARIABLES - os.environ.keys()):
            popen = forked.start(arguments, stdin=lifeline(), output=log, environment=environment, folder=self.folder)
        else:
            popen = start_process(arguments, log, environment, self.folder)
        process = Process(name, popen, more.get(REGISTRATION, ""))
        self._processes.append(process)
        return process

    def _answers(self) -> bool:
        assert self.api.popen.poll() is None, (self.folder / "api.log").read_text()
        try:
            return self._http.get("/healthz").is_success
        except httpx.TransportError:
            return False


@dataclass
class Trigger:
    """A trigger of a project file: written in Python (`how` it misbehaves), or declared (`match`)."""

    name: str
    declared: bool = False
    match: dict[str, Any] | None = None
    how: dict[str, Any] | None = None
    tag: str = ""
    max_restarts: int | None = None

    def text(self, upstream: Upstream) -> str:
        classpath, kwargs = upstream.serialize()
        if self.declared:
            return f"project.watch({self.name!r}, load_upstream({classpath!r}, {kwargs!r}), match={self.match!r})"
        described = {"classpath": classpath, "kwargs": kwargs}
        behaving = f"Behaving(name={self.name!r}, upstream={described!r}, tag={self.tag!r}, how={self.how!r})"
        return f"project.trigger({self.name!r}, {behaving}, max_restarts={self.max_restarts!r})"


def project_text(upstream: Upstream, triggers: Iterable[Trigger]) -> str:
    """Return a project file with these triggers on one upstream."""
    head = [
        "from headrace.project import Project",
        "from headrace.triggers.upstream import load_upstream",
        "from scenario_triggers import *",
    ]
    head += ["from scenario_triggers import Behaving", 'project = Project("scenario")']
    return "\n".join([*head, *(trigger.text(upstream) for trigger in triggers)]) + "\n"


@dataclass
class Feed:
    """Sends numbered messages to a queue, over so many lanes, and knows what it sent."""

    path: Path
    lanes: int = 4
    sent: int = 0
    _exits: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self._writer = self._exits.enter_context(QueueWriter(self.path))
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def send(self, count: int) -> range:
        """Send `count` more, and return their numbers."""
        numbers = range(self.sent, self.sent + count)
        for lane in range(self.lanes):
            mine = [self.message(n) for n in numbers if n % self.lanes == lane]
            if mine:
                self._writer.send_many(mine, lane=f"lane-{lane}")
        self.sent += count
        return numbers

    def message(self, n: int) -> dict[str, Any]:
        return {"n": n, "half": "even" if n % 2 == 0 else "odd", "text": "x" * 40}

    def left(self, lane: str | None = None) -> int:
        """Return how many messages are still in the queue."""
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=20)) as connection:
            if lane is None:
                return int(connection.execute("SELECT count(*) FROM message").fetchone()[0])
            query = "SELECT count(*) FROM message JOIN lane ON lane.id = row_id >> 40 WHERE name = ?"
            return int(connection.execute(query, (lane,)).fetchone()[0])

    @property
    def queue(self) -> Queue:
        return Queue(self.path)


@dataclass
class Oracle:
    """Knows which trigger must fire on which messages, and which must be dead letters; compares the log, the queue and the books."""

    deployment: Deployment
    feed: Feed
    declared: set[str] = field(default_factory=set)

    def counts(self) -> dict[str, int]:
        """Return how often each trigger has fired."""
        return dict(self.deployment.rows("SELECT name, fired FROM triggers"))

    def backlog(self) -> int:
        """How much is kept for triggers that are there; what was kept for a removed one stays until it comes back."""
        return int(self.deployment.rows("SELECT coalesce(sum(backlog), 0) FROM triggers WHERE state <> 'removed'")[0][0])

    def fired(self, name: str, count: int, patience: float = PATIENCE) -> None:
        """Wait until a trigger has fired so often."""
        until(lambda: self.counts().get(name, 0) >= count, f"{name} fires {count} times, {self.deployment.folder}", patience)

    def advanced(self, patience: float = PATIENCE) -> None:
        """Wait until the queue is empty."""
        until(lambda: self.feed.left() == 0, f"the queue is advanced, {self.deployment.folder}", patience)

    def settled(self, expected: Mapping[str, Sequence[int] | range], letters: int = 0, patience: float = PATIENCE) -> None:
        """Wait until each trigger has fired as often as it must, nothing is kept, and the queue is empty."""

        def done() -> bool:
            counts = self.counts()
            return (
                all(counts.get(name, 0) >= len(numbers) for name, numbers in expected.items())
                and len(self.letters()) >= letters
                and self.feed.left() == 0
                and self.backlog() == 0
            )

        def state() -> str:
            wanted = {name: len(numbers) for name, numbers in expected.items()}
            have = f"fired {self.counts()} of {wanted}, letters {len(self.letters())} of {letters}"
            return f"{have}, left {self.feed.left()}, backlog {self.backlog()}, {self.deployment.folder}"

        limit = time.monotonic() + patience
        while not done():
            assert time.monotonic() < limit, f"waited {patience:g} s in vain: {state()}"
            time.sleep(0.1)

    def log(self) -> dict[str, Counter[int]]:
        """Return, for each trigger, how often it is in the log as fired on each message. Each event is one message, once."""
        found: dict[str, Counter[int]] = {}
        seen: Counter[tuple[str | None, int]] = Counter()
        query = (
            "SELECT e.seq, e.payload, t.name FROM events e LEFT JOIN firings f ON f.seq = e.seq"
            " LEFT JOIN triggers t ON t.id = f.trigger_id ORDER BY e.seq"
        )
        last = -1
        for seq, payload, name in self.deployment.rows(query):
            value = msgspec.json.decode(payload)
            assert name is not None, f"event {seq} has no firing"
            if seq != last:
                seen[value.get("by"), value["n"]] += 1
                last = seq
            assert value.get("by") in (None, name), f"event {seq} of {value.get('by')} has a firing of {name}"
            found.setdefault(name, Counter())[value["n"]] += 1
        twice = {what: count for what, count in seen.items() if count > 1}
        assert not twice, f"in the log more than once: {_some(twice)}"
        return found

    def letters(self) -> list[tuple[str, str, int, int]]:
        """Return the dead letters as (trigger, kind, message, attempts), sorted."""
        names = {f"[{id}]": name for id, name in self.deployment.rows("SELECT id, name FROM triggers")}
        rows = self.deployment.rows("SELECT triggers, kind, raw, attempts FROM dead_letters")
        return sorted((names.get(who, who), kind, msgspec.json.decode(raw)["n"], attempts) for who, kind, raw, attempts in rows)

    def judge(self, expected: Mapping[str, Iterable[int]], *, letters: Iterable[tuple[str, str, int]] = ()) -> None:
        """The verdict: everything once and nothing else, all of it advanced, and the books say so too."""
        log = self.log()
        assert log.keys() <= expected.keys()
        for name, numbers in expected.items():
            wanted, got = set(numbers), log.get(name, Counter())
            twice = {n: count for n, count in got.items() if count > 1}
            missing, strange = sorted(wanted - got.keys()), sorted(got.keys() - wanted)
            assert not missing, f"{name} misses {len(missing)} of {len(wanted)}: {missing[:20]}, {self.deployment.folder}"
            assert not strange, f"{name} fired on {len(strange)} that it must not: {strange[:20]}, {self.deployment.folder}"
            assert not twice, f"{name} fired twice on {_some(twice)}"
        assert [letter[:3] for letter in self.letters()] == sorted(letters)
        assert self.feed.left() == 0
        assert self.backlog() == 0
        self.audited()

    def audited(self, *, pending: int = 0) -> dict[str, Any]:
        """The books balance: the API and the command line both say so. Return each trigger's."""
        with self.deployment.admin() as client:
            audit = client.get(calls.GET_AUDIT)
        assert audit["clean"], f"{audit}, {self.deployment.folder}"
        command = self.deployment.cli("audit")
        assert command.returncode == 0, f"{command.stdout}{command.stderr}"
        (stream,) = audit["streams"]
        books = {one["trigger"]: one for one in stream["triggers"]}
        assert sum(one["pending"] for one in books.values()) == pending, books
        return books

    def balanced(self, expected: Mapping[str, int], read: int) -> None:
        """Each of the triggers was owed every message that was read, and the books count as many firings as it made."""
        books = self.audited()
        have = {name: (books[name]["read"], books[name]["fired"]) for name in expected}
        assert have == {name: (read, count) for name, count in expected.items()}


def _some(found: Mapping[Any, int]) -> str:
    return f"{len(found)}: {dict(list(found.items())[:20])}"


class Trouble:
    """An api in trouble: a proxy on loopback that fails a share of the calls, as `seed` has it.

    A call that fails is answered 500, is not answered, or is done and then not answered, answered too late, or answered 502.
    """

    KINDS = ("500", "silent", "lost", "late", "502")

    def __init__(self, url: str, seed: int, share: float = 0.1, patience: float = 1.0) -> None:
        self._url = url
        self._chance = random.Random(seed)
        self._share = share
        self._patience = patience
        self._http: httpx.AsyncClient | None = None
        self.calls = 0
        self.failed: Counter[str] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.calls += 1
        kind = self._chance.choice(self.KINDS) if self._chance.random() < self._share else ""
        self.failed[kind] += 1
        if kind == "500":
            await _answer(send, 500)
        elif kind == "silent":
            await asyncio.sleep(self._patience * 1.5)
            await _answer(send, 504)
        else:
            answer = await self._pass_on(scope, body)
            if kind == "lost":
                # The start of an answer, and no end of it.
                await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000000")]})
                return
            if kind == "late":
                await asyncio.sleep(self._patience * 1.5)
            if answer is None or kind == "502":
                await _answer(send, 502)
            else:
                await _answer(send, answer.status_code, answer.headers, answer.content)

    async def _pass_on(self, scope: Any, body: bytes) -> httpx.Response | None:
        if self._http is None:
            self._http = httpx.AsyncClient(base_url=self._url, timeout=30, trust_env=False, verify=False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"] if name not in (b"host", b"content-length")}
        path = scope["raw_path"].decode() + (f"?{scope['query_string'].decode()}" if scope["query_string"] else "")
        try:
            return await self._http.request(scope["method"], path, headers=headers, content=body)
        except httpx.TransportError:
            return None

    async def aclose(self) -> None:
        if self._http is not None:
            await self._http.aclose()

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Give the url at which it is to be had."""
        with socket.create_server(("127.0.0.1", 0)) as bound:
            config = uvicorn.Config(
                self, loop="asyncio", log_level="critical", access_log=False, lifespan="off", timeout_graceful_shutdown=1
            )
            server = _Server(config, self.aclose)
            thread = Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
            thread.start()
            assert server.listening.wait(30)
            try:
                yield f"http://127.0.0.1:{bound.getsockname()[1]}"
            finally:
                server.should_exit = True
                thread.join(30)


class _Server(uvicorn.Server):
    """Says when it listens, and closes what is behind it."""

    def __init__(self, config: uvicorn.Config, aclose: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self.listening = Event()
        self._aclose = aclose

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await self._aclose()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


async def _answer(send: Any, status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
    kept = [(name.encode(), value.encode()) for name, value in (headers or {}).items() if name in ("content-type", "retry-after")]
    kept.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": kept})
    await send({"type": "http.response.body", "body": body})
