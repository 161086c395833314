"""The process that tests one connection, as a job that may read it."""

from __future__ import annotations

from headrace.client.job import JobClient
from headrace.client.secret_source import blocking_source
from headrace.settings import Settings
from headrace.sources.connection_probes import probe_connection
from headrace.triggers.secrets import SECRETS, get_connection
from headrace.wire.control.jobs import CompleteJob
from headrace.wiring.common import registration

PROJECT = "headrace connections test"


def probe_stored_connection(settings: Settings, id: str) -> str:
    """Read a connection as running jobs do, connect once, and return a line that describes the system.

    Raises:
        SecretError: There is no such connection.
        HeadraceError: The system refuses the connection or does not answer.
    """
    with JobClient(settings.url, key=settings.key) as client:
        client.register(registration("worker", PROJECT, None))
        SECRETS.set_backend(blocking_source(client))
        try:
            return probe_connection(get_connection(id))
        finally:
            SECRETS.set_backend(None)
            client.complete(CompleteJob(state="succeeded"))
