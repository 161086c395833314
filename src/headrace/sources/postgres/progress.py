"""The progress table: the position of each lane, and the mark of the event log, in the database that is read.

A slot confirms one LSN for all lanes, and cannot store a mark. With the table, a lane that is ahead of others is not read again, and a
slot or an event log that does not fit is recognised. The table is written before the slot is confirmed. So the slot is never ahead of the
table, unless another program has moved the slot or created it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.errors import UpstreamError
from headrace.sources.postgres.positions import lsn_text
from headrace.sources.postgres.server import fetch
from headrace.triggers.stream_log import LogMark

if TYPE_CHECKING:
    from psycopg import AsyncConnection, sql

RETENTION_DAYS: Final = 30

DEFINITION: Final = """CREATE TABLE {table} (
  slot text NOT NULL,
  lane text NOT NULL,
  position bigint NOT NULL,
  log text,
  stream text,
  receipts bigint,
  stored timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (slot, lane)
)"""

_STORE: Final = """
INSERT INTO {table} (slot, lane, position, log, stream, receipts)
SELECT %s, lane, position, %s, %s, %s FROM unnest(%s::text[], %s::bigint[]) AS given (lane, position)
ON CONFLICT (slot, lane) DO UPDATE
SET position = EXCLUDED.position, log = EXCLUDED.log, stream = EXCLUDED.stream, receipts = EXCLUDED.receipts, stored = now()
"""

_SLOT_LANE: Final = ""
"""The row of the slot itself. Its position is the confirmed LSN."""


class StoredProgress(NamedTuple):
    """What the table has of a slot. `confirmed_lsn` is None if it has nothing."""

    confirmed_lsn: int | None
    lanes: Mapping[str, int]
    mark: LogMark | None


class ProgressTable:
    """The rows of one slot in the table."""

    def __init__(self, connection: AsyncConnection[Any], table: str, slot: str) -> None:
        self._connection = connection
        self._name = table
        self._slot = slot
        self.confirmed_lsn = 0
        """The LSN up to which the slot may be confirmed."""

    async def open(self) -> StoredProgress:
        """Create the table if it is missing, and return its rows.

        Raises:
            UpstreamError: It is missing and this role may not create it, or may not use it.
        """
        exists = await fetch(self._connection, "SELECT to_regclass(%s) IS NOT NULL", self._identifier().as_string(self._connection))
        if not exists[0][0]:
            await self._create()
        rows = await fetch(
            self._connection, self._statement("SELECT lane, position, log, stream, receipts FROM {table} WHERE slot = %s"), self._slot
        )
        confirmed, mark = None, None
        for lane, position, log, stream, receipts in rows:
            if lane == _SLOT_LANE:
                confirmed = position
                mark = None if log is None or stream is None or receipts is None else LogMark(log, stream, receipts)
        self.confirmed_lsn = confirmed or 0
        return StoredProgress(confirmed, {row[0]: row[1] for row in rows if row[0] != _SLOT_LANE}, mark)

    async def store(self, confirmed_lsn: int, lanes: Mapping[str, int], mark: LogMark | None) -> None:
        """Store the positions of these lanes, and the LSN that the slot is confirmed up to next."""
        log, stream, receipts = mark or (None, None, None)
        await fetch(
            self._connection,
            self._statement(_STORE),
            self._slot,
            log,
            stream,
            receipts,
            [_SLOT_LANE, *lanes],
            [confirmed_lsn, *lanes.values()],
        )
        self.confirmed_lsn = confirmed_lsn

    async def remove_old(self) -> None:
        """Delete lanes without an advance for RETENTION_DAYS that have nothing after the confirmed LSN."""
        statement = "DELETE FROM {table} WHERE slot = %s AND lane <> '' AND stored < now() - make_interval(days => %s)"
        await fetch(self._connection, self._statement(statement), self._slot, RETENTION_DAYS)

    def check_slot(self, confirmed_lsn: int) -> None:
        """Check that the slot is not ahead of the table. Raises `UpstreamError`."""
        if confirmed_lsn > self.confirmed_lsn:
            raise UpstreamError(
                f"Changes are lost: slot {self._slot!r} is at {lsn_text(confirmed_lsn)}, but was confirmed up to "
                f"{lsn_text(self.confirmed_lsn)} only. Another program has moved it or created it again.",
                hint=f"Find out what is missing. To continue without it, delete the rows of this slot from {self._name}.",
            )

    async def _create(self) -> None:
        try:
            await fetch(self._connection, self._statement(DEFINITION))
        except UpstreamError as error:
            definition = " ".join(DEFINITION.format(table=self._name).split())
            raise UpstreamError(
                f"The progress table {self._name} does not exist, and cannot be created: {error}",
                hint=f"Create it, and grant SELECT, INSERT, UPDATE and DELETE on it: {definition}",
            ) from error

    def _identifier(self) -> sql.Identifier:
        from psycopg import sql

        return sql.Identifier(*self._name.split(".", 1))

    def _statement(self, text: str) -> sql.Composed:
        from psycopg import sql

        return sql.SQL(text).format(table=self._identifier())
