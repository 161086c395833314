"""Probe of a connection to a PostgreSQL database."""

from __future__ import annotations

from headrace.core.connection import Connection
from headrace.sources.connections.client_library import import_library
from headrace.sources.postgres.errors import described
from headrace.sources.postgres.settings import connect_parameters


def probe(connection: Connection) -> str:
    """Open a session, and return the version, the database, the role and whether a logical slot is possible.

    Raises:
        UpstreamError: The client library is missing, or the server refuses the credentials or parameters.
        StreamError: The server does not answer.
    """
    import_library("PostgreSQL cannot be reached: its client library", "postgres", "psycopg")
    import psycopg

    try:
        with psycopg.connect(**connect_parameters(connection), autocommit=True) as session:
            row = session.execute(
                "SELECT current_setting('server_version'), current_database(), current_user, current_setting('wal_level')"
            ).fetchone()
    except psycopg.Error as error:
        raise described("The connection to PostgreSQL failed", error) from error
    version, database, role, level = row or ("", "", "", "")
    return f"PostgreSQL {version}: database {database}, role {role}, wal_level {level}"
