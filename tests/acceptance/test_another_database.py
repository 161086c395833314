"""Another database under the same upstreams: new, switched or restored. Streams refuse it until `headrace streams adopt`."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.sources.queue.writer import QueueWriter
from headrace.wire.calls import admin as calls
from support.processes.deployment import Deployment, Process, until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

PROJECT = """
from headrace import Directory, Project, Queue

project = Project("orders")
project.watch("files", Directory("inbox"), id="$.n")
project.watch("messages", Queue("orders.queue"), id="$.n")
"""


class Scene:
    """A folder and a queue, that a triggerer reads into the database of the moment. Each has the same numbers."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.project = deployment.project(PROJECT)
        self.inbox = deployment.folder / "inbox"
        self.inbox.mkdir()
        self.sent = 0
        self.triggerer: Process | None = None

    def send(self, count: int) -> set[int]:
        numbers = range(self.sent, self.sent + count)
        part = self.inbox / ".new"
        part.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
        part.rename(self.inbox / f"{self.sent}.jsonl")
        with QueueWriter(self.deployment.folder / "orders.queue") as queue:
            queue.send_many([{"n": n} for n in numbers])
        self.sent += count
        return set(numbers)

    def start(self) -> None:
        self.triggerer = self.deployment.triggerer(self.project)

    def stop(self) -> None:
        if self.triggerer is not None:
            assert self.triggerer.stop() == 0

    def numbers(self, stream: str) -> list[int]:
        rows = self.deployment.rows("SELECT payload FROM events WHERE type LIKE ? ORDER BY seq", f"headrace.{stream}%")
        return sorted(json.loads(payload)["n"] for (payload,) in rows)

    def read(self, numbers: set[int]) -> None:
        """Wait until the database has these numbers of both, each once, and the folder and the queue are advanced."""
        for stream in ("directory", "queue"):
            until(partial(self._has, stream, numbers), f"{stream} is read, {self.deployment.folder}")
            assert self.numbers(stream) == sorted(numbers)
        until(lambda: not list(self.inbox.glob("*.jsonl")), "the files are done")
        with closing(sqlite3.connect(self.deployment.folder / "orders.queue")) as queue:
            until(lambda: queue.execute("SELECT count(*) FROM message").fetchone() == (0,), "the queue is done")

    def _has(self, stream: str, numbers: set[int]) -> bool:
        return set(self.numbers(stream)) >= numbers

    def refusals(self) -> dict[str, str]:
        """Wait until both streams are refused; return the command of each, as its error names it."""

        def commands() -> dict[str, str]:
            shown = self.deployment.cli("triggers", "--json")
            found = re.findall(r"headrace (streams adopt [^\"\\]*?--receipts \d+)", shown.stdout)
            return {"directory" if "directory:" in one else "queue": one for one in found}

        until(lambda: len(commands()) == 2, f"both streams are refused, {self.deployment.folder}")
        return commands()

    def adopt(self, command: str) -> str:
        done = self.deployment.cli(*shlex.split(command))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def audit(self) -> dict[str, Any]:
        with self.deployment.admin() as client:
            audit: dict[str, Any] = client.get(calls.GET_AUDIT)
        return audit

    def copy(self, name: str) -> Path:
        """Copy the database as the guide says, while everything runs."""
        saved = self.deployment.folder / name
        with closing(sqlite3.connect(self.deployment.database)) as database, closing(sqlite3.connect(saved)) as copy:
            database.backup(copy)
        return saved

    def put(self, database: Path | None) -> None:
        """Put another database in place of the one there; None: a new one."""
        self.stop()
        self.deployment.stop_api()
        for suffix in ("", "-wal", "-shm"):
            self.deployment.database.with_name(f"headrace.db{suffix}").unlink(missing_ok=True)
        if database is not None:
            self.deployment.database.write_bytes(database.read_bytes())
        self.deployment.start_api()


@pytest.fixture
def scene(tmp_path: Path) -> Any:
    with Deployment(tmp_path) as deployment:
        yield Scene(deployment)


def test_streams_refuse_another_database_until_they_are_adopted(scene: Scene) -> None:
    first = scene.send(20)
    scene.start()
    scene.read(first)
    scene.stop()
    old = scene.copy("old.db")
    scene.put(None)
    later = scene.send(10)
    scene.start()
    commands = scene.refusals()
    assert scene.numbers("directory") == scene.numbers("queue") == [], "nothing was read into a database that is refused"
    for command in commands.values():
        assert "has the earlier events" in scene.adopt(command)
    scene.read(later)
    assert scene.audit()["clean"], "what the other log has is not missing"
    scene.stop()
    scene.start()
    last = scene.send(5)
    scene.read(later | last)
    # The old database comes back: it does not have what the new one has.
    scene.put(old)
    scene.start()
    assert scene.refusals() != commands
    assert scene.numbers("directory") == sorted(first)


def test_streams_refuse_an_older_backup_and_the_audit_reports_missing_events(scene: Scene) -> None:
    first = scene.send(20)
    scene.start()
    scene.read(first)
    saved = scene.copy("saved.db")
    scene.read(first | (lost := scene.send(7)))
    scene.stop()
    newest = scene.copy("newest.db")
    scene.put(saved)
    later = scene.send(10)
    scene.start()
    commands = scene.refusals()
    assert set(scene.numbers("directory")) == first
    for command in commands.values():
        assert "Missing: " in scene.adopt(command)
    scene.read(first | later)
    audit = scene.audit()
    assert not audit["clean"]
    problems = [[one["problem"] for one in stream["problems"]] for stream in audit["streams"]]
    assert all("since the database was restored" in told[-1] for told in problems), problems
    # The files are done, and the queue is still there: it tells how far its lane was read.
    assert [told[:-1] for told in problems] == [[], ["nothing is recorded after 20 up to 27"]]
    assert scene.deployment.cli("audit").returncode == 1
    # What is missing is in the folder's done files; put back, it is read again, and what the log has is not.
    scene.stop()
    for done in (scene.inbox / "done").glob("*/*.jsonl"):
        done.rename(scene.inbox / done.name)
    scene.start()
    until(lambda: set(scene.numbers("directory")) >= first | lost | later, "the missing are read")
    assert scene.numbers("directory") == sorted(first | lost | later)
    # The newest database turns up after all: it does not have what was read meanwhile.
    until(lambda: not list(scene.inbox.glob("*.jsonl")), "the files are done")
    scene.put(newest)
    scene.start()
    scene.refusals()


def test_a_restored_database_without_missing_receipts_is_accepted(scene: Scene) -> None:
    first = scene.send(20)
    scene.start()
    scene.read(first)
    scene.stop()
    scene.put(scene.copy("saved.db"))
    scene.start()
    scene.read(first | scene.send(10))
    assert scene.audit()["clean"]
