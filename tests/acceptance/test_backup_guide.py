"""The commands of the guide to backup and restore: no event is lost or stored twice unreported, and later raw events are read again."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from support.processes.deployment import Deployment, Process, until
from support.processes.postgres import database_of

pytestmark = [pytest.mark.acceptance, pytest.mark.spark, pytest.mark.xdist_group("clusters"), pytest.mark.timeout(500)]

GUIDE = (Path(__file__).parents[2] / "docs/guides/backup-and-restore.md").read_text()

PROJECT = """
from headrace import Directory, Project

project = Project("shop")
project.watch("orders.file", Directory("inbox"), id="$.n")


@project.pipeline(on="orders.*", table="orders", payload="n long")
def orders(events):
    return events.select("payload.n", "seq")
"""


class Shop:
    """A deployment in its folder, as the guide has it: the home is `.headrace`, and `/backup` a folder beside it."""

    def __init__(self, folder: Path, database_url: str | None) -> None:
        self.folder = folder
        self.backup = folder / "backup"
        self.backup.mkdir()
        self.inbox = folder / "inbox"
        self.inbox.mkdir()
        self.tables = folder / ".headrace" / "tables"
        self.deployment = Deployment(folder)
        self.deployment.database = folder / ".headrace" / "headrace.db"
        self.environment = self.deployment._environment
        self.environment["HEADRACE_HOME"] = str(folder / ".headrace")
        del self.environment["HEADRACE_KEY"]
        if database_url is not None:
            self.environment["HEADRACE_DATABASE_URL"] = database_url
        self.project = self.deployment.project(PROJECT)
        self.environment["HEADRACE_PROJECT"] = str(self.project)
        self.sent = 0

    def run(self, command: str, **changes: str) -> str:
        """Run a command of the guide, with another word in place of some of its words."""
        assert f"$ {command}\n" in GUIDE, f"the guide does not say: {command}"
        for before, after in {**changes, "/backup": str(self.backup)}.items():
            command = command.replace(before, after)
        command = re.sub(r"^headrace ", f"{shlex.quote(sys.executable)} -m headrace ", command)
        done = subprocess.run(["bash", "-ec", command], env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False)
        self.code = done.returncode
        return done.stdout + done.stderr

    def ok(self, command: str, **changes: str) -> str:
        shown = self.run(command, **changes)
        assert self.code == 0, shown
        return shown

    def send(self, count: int) -> None:
        part = self.inbox / ".new"
        part.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(self.sent, self.sent + count)))
        part.rename(self.inbox / f"{self.sent}.jsonl")
        self.sent += count

    def rows(self) -> Counter[int]:
        """Return how often each number is in the table."""
        found: Counter[int] = Counter()
        for file in (self.tables / "orders").glob("*.parquet"):
            found.update(pq.read_table(file, columns=["n"], partitioning=None).column("n").to_pylist())
        return found

    def settled(self) -> None:
        until(lambda: len(self.rows()) == self.sent and not list(self.inbox.glob("*.jsonl")), f"all is in the table, {self.folder}")
        assert set(self.rows().values()) == {1}

    def refused(self, process: Process) -> str:
        """Wait until the pipeline has ended; return what it says."""
        process.popen.wait(90)
        return (self.folder / f"{process.name}.log").read_text()


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.exhaustive)])
def test_the_guide_restores_a_backup_made_under_load(tmp_path: Path, kind: str) -> None:
    shop = Shop(tmp_path, database_of(tmp_path, empty=True) if kind == "postgresql" else None)
    with shop.deployment as deployment:
        triggerer, pipeline = deployment.triggerer(shop.project), deployment.pipeline(shop.project)
        shop.send(100)
        shop.settled()
        saved = threading.Event()

        def load() -> None:
            while not saved.wait(0.02):
                shop.send(10)

        feeder = threading.Thread(target=load)
        feeder.start()
        if kind == "sqlite":
            shop.ok("sqlite3 .headrace/headrace.db \".backup '/backup/headrace.db'\"")
        else:
            shop.ok('pg_dump --format=custom --file=/backup/headrace.dump "$HEADRACE_DATABASE_URL"')
        saved.set()
        feeder.join()
        shop.ok("cp .headrace/key .headrace/fernet-key /backup/")
        for _ in range(5):
            shop.send(50)
            shop.settled()
        for process in (pipeline, triggerer):
            assert process.stop() == 0
        deployment.stop_api()

        if kind == "sqlite":
            shop.ok("rm -f .headrace/headrace.db-wal .headrace/headrace.db-shm")
            shop.ok("cp /backup/headrace.db .headrace/headrace.db")
        else:
            shop.ok('pg_restore --clean --if-exists --single-transaction --dbname="$HEADRACE_DATABASE_URL" /backup/headrace.dump')
        deployment.start_api()
        deployment.triggerer(shop.project)
        until(lambda: "streams adopt" in deployment.cli("triggers", "--json").stdout, f"the stream is refused, {tmp_path}")
        shown = deployment.cli("triggers", "--json").stdout
        refused = re.search(r"streams adopt '?([^' ]+)'? --log (\w+) --receipts (\d+)", shown)
        assert refused is not None, shown
        stream, log, receipts = refused.groups()
        adopted = shop.ok(
            "headrace streams adopt 'directory:/srv/orders/inbox/*.jsonl' --log 5f0c… --receipts 1204",
            **{"directory:/srv/orders/inbox/*.jsonl": stream, "5f0c…": log, "1204": receipts},
        )
        assert "Missing: " in adopted

        ended = shop.refused(deployment.pipeline(shop.project))
        found = re.search(r"rows of batch (\d+) of the scope .* whose last batch in the database is (\d+)", ended)
        assert found is not None, ended
        before = shop.rows()
        assert len(before) == shop.sent, "the refused pipeline wrote nothing"
        shop.ok("mkdir -p /backup/later")
        shop.ok(
            "for file in .headrace/tables/orders/*.parquet; do name=$(basename $file); if [ ${name%%-*} -gt 41 ]; then "
            "mv $file /backup/later/; fi; done",
            **{"41": found[2]},
        )
        assert list((shop.backup / "later").glob("*.parquet"))
        shop.ok("headrace tables adopt orders --tables .headrace/tables --scope shop --log 5f0c…", **{"5f0c…": log})
        deployment.pipeline(shop.project)
        shop.ok("mv inbox/done/*/*.jsonl inbox/")
        shop.send(10)
        shop.settled()
        assert "Clean" in shop.ok("headrace audit --tables .headrace/tables")
        assert "missing since the database was restored" in " ".join(shop.run("headrace audit").split())
        assert shop.code == 1
