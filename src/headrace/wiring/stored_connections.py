"""Connections of the API for a command, which reads them as a short job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock

from headrace.client.job import JobClient
from headrace.client.secret_source import Value, blocking_source
from headrace.pipeline.table_storage.tables import Tables, open_tables
from headrace.settings import Settings
from headrace.triggers.secrets import SECRETS, Kind, SecretBackend
from headrace.wire.control.jobs import CompleteJob
from headrace.wiring.common import registration


@contextmanager
def stored_connections(settings: Settings, key: Callable[[], str], command: str) -> Iterator[None]:
    """Give this process the connections of the API, in any thread. The first one that it reads registers a job, which ends with the block.

    `key` returns the deployment key. `command` is the project of the job.
    """
    with ExitStack() as stack:
        backend = _Backend(settings, key, command, stack)
        SECRETS.set_backend(SecretBackend(backend.get, backend.get_async))
        stack.callback(SECRETS.set_backend, None)
        yield


@contextmanager
def opened_tables(settings: Settings, key: Callable[[], str], command: str) -> Iterator[Tables]:
    """Return the folder of the tables, for a command. The arguments are those of `stored_connections`.

    Raises:
        SecretError: The connection to the bucket does not exist.
        PipelineError: The connection cannot be used for tables.
    """
    with stored_connections(settings, key, command):
        yield open_tables(settings.table_location)


class _Backend:
    """Registers the job when it is needed."""

    def __init__(self, settings: Settings, key: Callable[[], str], command: str, stack: ExitStack) -> None:
        self._settings = settings
        self._key = key
        self._command = command
        self._stack = stack
        self._source: SecretBackend | None = None
        self._lock = Lock()

    def get(self, kind: Kind, name: str) -> Value:
        with self._lock:
            if self._source is None:
                self._source = self._register()
            return self._source.ask(kind, name)

    async def get_async(self, kind: Kind, name: str) -> Value:
        return await asyncio.to_thread(self.get, kind, name)

    def _register(self) -> SecretBackend:
        client = self._stack.enter_context(JobClient(self._settings.url, key=self._key()))
        client.register(registration("worker", self._command, None))
        self._stack.callback(client.complete, CompleteJob(state="succeeded"))
        return blocking_source(client)
