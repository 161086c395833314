"""The process that tests one connection, as a job that may read it."""

from __future__ import annotations

from headrace.settings import Settings
from headrace.sources.connections.probes import probe_connection
from headrace.triggers.secrets import get_connection
from headrace.wiring.stored_connections import stored_connections

PROJECT = "headrace connections test"


def probe_stored_connection(settings: Settings, id: str) -> str:
    """Read a connection as running jobs do, connect once, and return a line that describes the system.

    Raises:
        SecretError: There is no such connection.
        HeadraceError: The system refuses the connection or does not answer.
    """
    with stored_connections(settings, lambda: settings.key, PROJECT):
        return probe_connection(get_connection(id))
