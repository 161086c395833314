"""The session for requests: it checks the server and the slot, creates the slot, and reads what it has confirmed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from headrace.errors import StreamError, UpstreamError
from headrace.sources.postgres.errors import LOGICAL_HINT, ROLE_HINT, described, lost_slot
from headrace.sources.postgres.positions import lsn_text

if TYPE_CHECKING:
    from psycopg import AsyncConnection

REQUEST_SECONDS: Final = 30.0
CONFIRM_SECONDS: Final = 30.0
FIRST_PAUSE_SECONDS: Final = 0.0005
MAX_PAUSE_SECONDS: Final = 0.05
PLUGIN: Final = "pgoutput"
OLDEST_VERSION: Final = 120_000

T = TypeVar("T")

_SERVER: Final = """
SELECT current_setting('server_version_num')::int, current_setting('wal_level'), current_user, current_database(),
       (SELECT rolsuper OR rolreplication FROM pg_roles WHERE rolname = current_user),
       (SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout')
"""
_SLOT: Final = """
SELECT plugin, database, active_pid, {wal_status}, (confirmed_flush_lsn - '0/0')::numeric::text
FROM pg_replication_slots WHERE slot_name = %s
"""
_CONFIRMED: Final = "SELECT (confirmed_flush_lsn - '0/0')::numeric::text, {wal_status} FROM pg_replication_slots WHERE slot_name = %s"


class ServerInfo(NamedTuple):
    """What a server says about itself."""

    version: int
    wal_level: str
    role: str
    database: str
    may_replicate: bool
    sender_timeout_ms: int


class SlotInfo(NamedTuple):
    """A slot as the server describes it. `wal_status` is None before PostgreSQL 13."""

    plugin: str | None
    database: str | None
    active_pid: int | None
    wal_status: str | None
    confirmed_lsn: int


class ServerSession:
    """One ordinary session. Requests of several tasks wait for each other."""

    def __init__(self, connection: AsyncConnection[Any], info: ServerInfo) -> None:
        self._connection = connection
        self.info = info
        self._wal_status = "wal_status" if info.version >= 130_000 else "NULL::text"

    @property
    def connection(self) -> AsyncConnection[Any]:
        """The connection, for requests of other modules."""
        return self._connection

    @classmethod
    async def connect(cls, parameters: Mapping[str, Any]) -> ServerSession:
        """Open the session and check the server. Raises `UpstreamError` or `StreamError`."""
        import psycopg

        try:
            connection = await psycopg.AsyncConnection.connect(**parameters, autocommit=True)
        except psycopg.Error as error:
            raise described("The connection to PostgreSQL failed", error) from error
        try:
            row = (await fetch(connection, _SERVER))[0]
            info = ServerInfo(*row)
            _check_server(info)
        except BaseException:
            await connection.close()
            raise
        return cls(connection, info)

    async def slot(self, name: str) -> SlotInfo | None:
        """Return a slot, or None if it does not exist."""
        rows = await fetch(self._connection, _SLOT.format(wal_status=self._wal_status), name)
        if not rows:
            return None
        plugin, database, active_pid, wal_status, confirmed = rows[0]
        return SlotInfo(plugin, database, active_pid, wal_status, int(confirmed or 0))

    async def create_slot(self, name: str) -> None:
        """Create a slot. It delivers the transactions that commit from now on."""
        await fetch(self._connection, "SELECT pg_create_logical_replication_slot(%s, %s)", name, PLUGIN)

    async def wait_until_confirmed(self, slot: str, lsn: int) -> None:
        """Wait until the server has stored that everything before `lsn` is confirmed.

        Raises:
            StreamError: It has not after CONFIRM_SECONDS.
            UpstreamError: The slot is missing or invalidated.
        """
        until, pause = time.monotonic() + CONFIRM_SECONDS, FIRST_PAUSE_SECONDS
        statement = _CONFIRMED.format(wal_status=self._wal_status)
        while True:
            rows = await fetch(self._connection, statement, slot)
            if not rows:
                raise lost_slot(slot, f"slot {slot!r} was dropped.")
            if rows[0][1] == "lost":
                raise lost_slot(slot, f"the server has invalidated slot {slot!r}.")
            if int(rows[0][0] or 0) >= lsn:
                return
            if time.monotonic() > until:
                raise StreamError(
                    f"Slot {slot!r} is not confirmed up to {lsn_text(lsn)} after {CONFIRM_SECONDS:g} s.",
                    hint="The server may be decoding a large transaction. The confirmation is repeated.",
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def close(self) -> None:
        """End the session."""
        await self._connection.close()


def check_slot(name: str, slot: SlotInfo, database: str) -> None:
    """Check that a slot is ours to read, and has all changes. Raises `UpstreamError`."""
    if slot.plugin != PLUGIN:
        kind = "a physical slot" if slot.plugin is None else f"a slot of the plugin {slot.plugin}"
        raise UpstreamError(f"Slot {name!r} is {kind}, not of pgoutput.", hint="Give the upstream another slot.")
    if slot.database != database:
        raise UpstreamError(
            f"Slot {name!r} is of database {slot.database!r}, and the connection is to {database!r}.",
            hint="Give the upstream another slot.",
        )
    if slot.wal_status == "lost":
        raise lost_slot(
            name,
            f"the server has invalidated slot {name!r}, and removed changes that were not read "
            "(max_slot_wal_keep_size). Drop the slot with pg_drop_replication_slot first.",
        )


def _check_server(info: ServerInfo) -> None:
    if info.version < OLDEST_VERSION:
        raise UpstreamError(f"PostgreSQL {info.version // 10_000} is too old.", hint="Use PostgreSQL 12 or newer.")
    if info.wal_level != "logical":
        raise UpstreamError(f"The server has wal_level = {info.wal_level!r}: it cannot decode changes.", hint=LOGICAL_HINT)


def role_error(info: ServerInfo, error: UpstreamError | StreamError) -> UpstreamError | StreamError:
    """Return the error of a failed replication connection: that of a role without the right, or `error`."""
    if info.may_replicate or "replication" not in str(error):
        return error
    return UpstreamError(f"Role {info.role!r} may not read replication slots.", hint=ROLE_HINT.format(role=info.role))


async def fetch(connection: AsyncConnection[Any], statement: Any, *values: Any) -> list[tuple[Any, ...]]:
    """Run one statement in a transaction of its own, and return its rows. Raises `UpstreamError` or `StreamError`."""
    import psycopg

    async def run() -> list[tuple[Any, ...]]:
        cursor = await connection.execute(statement, values or None)
        return await cursor.fetchall() if cursor.description else []

    try:
        return await answered(run())
    except psycopg.Error as error:
        raise described("A request to PostgreSQL failed", error) from error


async def answered(request: Awaitable[T]) -> T:
    """Return the answer of the server. Raises `StreamError` if there is none within REQUEST_SECONDS, and the errors of the client."""
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            return await request
    except TimeoutError:
        raise StreamError(f"PostgreSQL has not answered a request in {REQUEST_SECONDS:g} s.", hint="It is repeated.") from None
