"""API server, triggerer and pipeline on one machine, started and stopped together."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

import httpx
import structlog

from headrace.errors import ResourceError
from headrace.process.alerts import standalone_facts
from headrace.process.child import LIFELINE, ChildProcess, ChildSpec
from headrace.process.supervisor import Notice, ProcessSupervisor
from headrace.run_files import STANDALONE, RunFile, read_run_file
from headrace.settings import Settings

# HOST needs the key: without one it can only be a loopback address.
_ONLY_FOR_API = ("HEADRACE_FERNET_KEYS", "HEADRACE_TOKEN")  # the other processes run users' code
_NOT_FOR_RUNNERS = frozenset({"HEADRACE_KEY", "HEADRACE_FERNET_KEYS", "HEADRACE_DATABASE_URL", "HEADRACE_TOKEN", "HEADRACE_HOST", LIFELINE})


class LocalDeployment:
    """The processes of a project. The end of the context stops them, the API server last."""

    def __init__(self, settings: Settings, notice: Notice) -> None:
        self._settings = settings.model_copy(update={"port": settings.port or _free_port(settings.host)})
        self._notice = notice
        self._run_file = RunFile(settings.home / STANDALONE)
        self._exits = AsyncExitStack()
        self._supervisor: ProcessSupervisor | None = None
        self._log = structlog.get_logger(__name__)

    async def __aenter__(self) -> Self:
        _check_only_one(self._settings.home)
        supervisor = ProcessSupervisor(self.logs, self._notice, self._report)
        self._supervisor = await self._exits.enter_async_context(supervisor)
        self._exits.enter_context(self._run_file)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exits.aclose()

    @property
    def url(self) -> str:
        """The URL of the API server."""
        return self._settings.url

    @property
    def logs(self) -> Path:
        """The folder of the logs of the processes."""
        return self._settings.home / "logs"

    @property
    def supervisor(self) -> ProcessSupervisor:
        """The supervisor of the processes."""
        if self._supervisor is None:
            raise RuntimeError("LocalDeployment is used outside of its context")
        return self._supervisor

    async def start(self, *more: ChildSpec) -> None:
        """Start the API server and wait until it answers. Then start the triggerer, the pipeline, and `more`.

        Raises:
            ResourceError: The port is taken.
            ProcessFailed: A process failed permanently.
        """
        _check_port(self._settings.host, self._settings.port)
        await self.supervisor.start(self._spec("api"), ready=self._api_answers)
        for spec in (self._spec("triggerer"), self._spec("pipeline"), *more):
            await self.supervisor.start(spec)

    def _report(self, children: Mapping[str, ChildProcess]) -> None:
        self._run_file.write({"url": self.url} | standalone_facts(children))

    def worker(self) -> ChildSpec:
        """Return the start of a worker, for a project with tasks."""
        return self._spec("worker")

    async def failed(self) -> None:
        """Wait until a process fails permanently, and raise its error."""
        await self.supervisor.failed()

    def _spec(self, name: str) -> ChildSpec:
        hidden = {} if name == "api" else dict.fromkeys(_ONLY_FOR_API, "")
        return ChildSpec(name, ("-m", "headrace", name), child_environment(self._settings) | hidden)

    async def _api_answers(self) -> None:
        async with httpx.AsyncClient(timeout=2.0) as client:
            while True:
                try:
                    if (await client.get(f"{self.url}/healthz")).is_success:
                        return
                except httpx.TransportError as error:
                    self._log.debug("API server not ready", error=str(error))
                await asyncio.sleep(0.05)  # there is no notification of a listening socket


def child_environment(settings: Settings) -> dict[str, str]:
    """Return the environment in which a process reads the same settings."""
    values = {
        "HOME": settings.home.absolute(),
        "DATABASE_URL": settings.database,
        "HOST": settings.host,
        "PORT": settings.port,
        "API_URL": settings.url,
        "KEY": settings.key,
        "PROJECT": settings.project.absolute(),
        "MASTER": settings.master,
        "SPARK_CONF": json.dumps(settings.spark_conf),
        "LOOKBACK": settings.lookback,
        "ACK_TIMEOUT": settings.ack_timeout,
        "ADVANCE_TIMEOUT": settings.advance_timeout,
        "RETRY_WAIT": settings.retry_wait,
        "API_TIMEOUT": settings.api_timeout,
        "JOB_TIMEOUT": settings.job_timeout,
        "STUCK_TIMEOUT": settings.stuck_timeout,
        "MAX_TRIGGERS": settings.max_triggers,
        "QUEUES": settings.queues,
        "WORKER_CONCURRENCY": settings.worker_concurrency,
        "LOG_LEVEL": settings.log_level,
        "DEBUG": settings.debug,
    }
    return {f"HEADRACE_{name}": str(value) for name, value in values.items()} | {"PYTHONUNBUFFERED": "1"}


def runner_environment(settings: Settings) -> dict[str, str]:
    """Return the environment of a runner: these settings without credentials, since it runs users' code."""
    return {name: value for name, value in (os.environ | child_environment(settings)).items() if name not in _NOT_FOR_RUNNERS}


def _check_only_one(home: Path) -> None:
    record = read_run_file(home / STANDALONE)
    if record is not None and record.alive:
        where = f"process {record.facts.get('pid')}, {record.facts.get('url')}"
        raise ResourceError(
            f"A standalone runs in {home} already ({where}).", hint="Use that one, or stop it first; or choose another --home."
        )


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _check_port(host: str, port: int) -> None:
    try:
        with socket.create_server((host, port)):
            return
    except OSError as error:
        raise ResourceError(
            f"Port {port} on {host} cannot be used: {os.strerror(error.errno or 0)}.",
            hint="Stop what listens there, or choose another: --port 0 takes any that is free.",
        ) from error
