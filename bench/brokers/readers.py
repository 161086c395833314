"""Run the reader of a case as processes: Headrace with its API server, Airflow in its own environment, or the bare client."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import psutil
from bench.api_process import KEY, ROOT, Api, api_process, clean_environment, process, processor_seconds
from bench.brokers.broker import Broker
from bench.brokers.case import Case

PEER_PYTHON: Final = ROOT / ".venv-bench" / "bin" / "python"
PROJECT: Final = Path(__file__).with_name("project.py")


class Reader(NamedTuple):
    """A running reader. `database` is that of its API server, or None for a reader without one, as is `api`."""

    pid: int
    database: Path | None = None
    api: int | None = None

    @property
    def processor_seconds(self) -> float:
        """The processor time of the reader and of its children."""
        total = 0.0
        for one in (psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += processor_seconds(one.pid)
        return total

    @property
    def api_processor_seconds(self) -> float | None:
        """The processor time of the API server."""
        return None if self.api is None else processor_seconds(self.api)


@asynccontextmanager
async def reader_of(broker: Broker, kind: str, case: Case, name: str) -> AsyncIterator[Reader]:
    """Run the reader of a case on a source. `kind` is the module of the broker."""
    async with AsyncExitStack() as exits:
        if case.reader == "bare":
            arguments = ("-m", "bench.brokers.bare", kind, broker.address, name)
            bare = await exits.enter_async_context(process(*arguments, cwd=ROOT, env=clean_environment()))
            yield Reader(bare.pid)
            return
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="headrace-bench-")))
        if case.reader == "airflow":
            arguments = ("-m", "bench.brokers.peer", name, str(case.watches), case.match)
            environment = _peer_environment(broker.address, name, folder)
            peer = await exits.enter_async_context(process(*arguments, cwd=ROOT, env=environment, python=PEER_PYTHON))
            yield Reader(peer.pid)
            return
        api = await exits.enter_async_context(api_process(folder))
        running = await exits.enter_async_context(triggerer(broker, case, name, folder, api))
        yield Reader(running.pid, folder / "headrace.db", api.pid)


@asynccontextmanager
async def triggerer(broker: Broker, case: Case, name: str, folder: Path, api: Api, *, number: int = 0) -> AsyncIterator[psutil.Process]:
    """Run a triggerer with the watches of a case. Each one of an API server has its own number."""
    # The folder of a project is searched for modules: beside this one, the project would import modules of the benchmark.
    project = shutil.copy(PROJECT, folder)
    home = folder / f"triggerer-{number}"
    settings = {"home": str(home), "api_url": api.url, "key": KEY, "project": str(project), "log_level": "error"}
    environment = clean_environment(**settings, connection_bench=broker.connection) | {
        "BENCH_UPSTREAM": json.dumps(broker.upstream(name).serialize()),
        "BENCH_WATCHES": str(case.watches),
        "BENCH_MATCH": case.match,
    }
    async with process("-m", "headrace", "triggerer", cwd=folder, env=environment) as running:
        yield psutil.Process(running.pid)


def _peer_environment(address: str, group: str, folder: Path) -> dict[str, str]:
    """Return the environment of Airflow, whose import creates its home folder with a configuration."""
    extra = {"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
    connection = json.dumps({"conn_type": "kafka", "extra": extra})
    return {**os.environ, "AIRFLOW_HOME": str(folder), "AIRFLOW_CONN_KAFKA_DEFAULT": connection, "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR"}
