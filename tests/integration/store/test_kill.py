"""kill -9 during appends: the confirmed batches are stored, in order, and no batch is stored in part."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.store import open_store
from support.processes.postgres import Postgres
from support.processes.store import DATABASES, TurnedClock, database_url, event, holder

BATCH = 50
APPENDER = """
import sys
from contextlib import closing
from headrace.store import open_store
from support.processes.store import TurnedClock, event, holder
with closing(open_store(sys.argv[1], clock=TurnedClock())) as store:
    owner = holder(store, "first", registration_id="the killed one")
    n = 0
    while True:
        owner.append(*(event(f"{n}-{i}") for i in range(50)))
        print(n, flush=True)
        n += 1
"""


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield database_url("sqlite", tmp_path)
        return
    server = Postgres(fsync=True)
    try:
        yield server.url("postgres")
    finally:
        server.close()


def test_confirmed_batches_survive_a_kill(url: str) -> None:
    appender = subprocess.Popen(
        [sys.executable, "-c", APPENDER, url],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert appender.stdout is not None
    confirmed = [int(appender.stdout.readline()) for _ in range(20)]
    appender.send_signal(signal.SIGKILL)
    confirmed += [int(line) for line in appender.stdout.readlines()]
    appender.stdout.close()
    assert appender.wait() == -signal.SIGKILL
    with closing(open_store(url, clock=TurnedClock())) as store:
        rows = store.log.page(after=0).table
        assert rows.num_rows % BATCH == 0
        assert rows.num_rows >= len(confirmed) * BATCH
        assert rows.column("seq").to_pylist() == list(range(1, rows.num_rows + 1))
        assert store.log.head().head == rows.num_rows
        successor = holder(store, replaces="the killed one", hostname="here")
        assert successor.epochs == {1: 2}
        assert successor.append(event("0-0"), event("new")) == ["duplicate", "stored"]
