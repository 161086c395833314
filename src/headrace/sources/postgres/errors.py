"""Errors of psycopg and the server as errors of Headrace: what failed, why, and what to do."""

from __future__ import annotations

from typing import Final

from headrace.errors import HeadraceError, StreamError, UpstreamError

LOGICAL_HINT: Final = "Run ALTER SYSTEM SET wal_level = 'logical' and restart the server. Managed services have a parameter for it."
ROLE_HINT: Final = "Run ALTER ROLE {role} REPLICATION. On Amazon RDS, run GRANT rds_replication TO {role}."

REJECTED: Final = {
    "28000": "Correct the login of the connection, and allow it in pg_hba.conf.",
    "28P01": "Correct the login and password of the connection.",
    "3D000": "Correct the database and the login of the connection.",
    "08P01": "Correct the parameter in the extra of the connection.",
    "42501": "Give the role REPLICATION, and SELECT on the tables. To create a publication, it must own the tables.",
    "42704": "The publication must be older than the slot. If it was dropped, drop the slot too, and create both again.",
    "42P01": "Correct the name of the table, or create it.",
    "53400": "Raise max_replication_slots or max_wal_senders of the server, or drop slots that are not used.",
    "53300": "Raise max_connections or max_wal_senders of the server.",
}
"""Codes of errors that another attempt does not change, with what to do."""

_REJECTED_TEXTS: Final = {
    "password authentication failed": "28P01",
    "no pg_hba.conf entry": "28000",
    "no password supplied": "28P01",
    "does not support SSL": "28000",
    "does not exist": "3D000",
    "invalid connection option": "08P01",
}
"""Messages of failed logins, whose errors have no code."""
AWAY_HINT: Final = "Is the server running? Are host and port of the connection right, and sslmode in its extra?"


def described(what: str, error: BaseException) -> HeadraceError:
    """Return the error of Headrace for an exception of psycopg. `what` names what failed."""
    if isinstance(error, HeadraceError):
        return error
    text = " ".join(str(error).split()).rstrip(". ")
    code = getattr(error, "sqlstate", None) or next((code for part, code in _REJECTED_TEXTS.items() if part in text), None)
    if code in REJECTED:
        return UpstreamError(f"{what}: {text}.", hint=REJECTED[code])
    if code is None or code.startswith(("08", "57P")):
        return StreamError(f"{what}: the server does not answer: {text}.", hint=AWAY_HINT)
    return StreamError(f"{what}: {text}.")


def lost_slot(slot: str, reason: str) -> UpstreamError:
    """Return the error of a slot that no longer has all changes since it was confirmed."""
    return UpstreamError(
        f"Changes are lost: {reason}",
        hint=f"Find out what is missing, and send it again from its tables. To continue without it, create the slot: SELECT "
        f"pg_create_logical_replication_slot('{slot}', 'pgoutput')",
    )
