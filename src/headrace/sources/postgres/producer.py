"""Stream a logical replication slot as a shared stream: one session streams, another one sends requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from headrace.core.ledger.outcome import AdvanceItem
from headrace.errors import StreamError, UpstreamError
from headrace.sources.connections.client_library import import_library
from headrace.sources.group_commit import GroupCommit
from headrace.sources.postgres.decoding.formats import ChangesFormatter, DebeziumFormatter, Format, Formatter, OutboxFormatter
from headrace.sources.postgres.errors import lost_slot
from headrace.sources.postgres.positions import birthmark_of
from headrace.sources.postgres.progress import ProgressTable
from headrace.sources.postgres.publication import missing_tables, prepare_publication
from headrace.sources.postgres.reader import SlotReader
from headrace.sources.postgres.replication import ReplicationSession
from headrace.sources.postgres.server import ServerSession, check_slot, role_error
from headrace.sources.postgres.settings import connect_parameters
from headrace.sources.postgres.transactions import LaneState, PostgresMessage, TransactionLog
from headrace.triggers.secrets import aget_connection
from headrace.triggers.upstream import SharedStreamProducer

if TYPE_CHECKING:
    from headrace.triggers.stream_log import LogMark

STATUS_SECONDS: Final = 10.0
STALL_SECONDS: Final = 60.0
MAX_IDLE_WAL_BYTES: Final = 1024 * 1024
"""How much of the log may pass without a raw event before the progress table is written for it."""

log = structlog.get_logger(__name__)


class Description(NamedTuple):
    """The arguments of a `Postgres` upstream, as its producer needs them."""

    tables: Sequence[str]
    slot: str
    connection: str
    publication: str
    format: Format
    payload: str | None
    key: str | None
    lane: str | None
    progress_table: str | None
    create_publication: bool


class _Opened(NamedTuple):
    """An open stream."""

    server: ServerSession
    replication: ReplicationSession
    progress: ProgressTable | None
    formatter: Formatter
    reader: SlotReader
    transactions: TransactionLog


class PostgresProducer(SharedStreamProducer):
    """The producer of a `Postgres` upstream: yields `PostgresMessage`s. `advance` confirms the slot, with one call for all waiting lanes.

    The slot is not confirmed past a failed raw event of any lane. It is read again when the upstream is opened next.
    """

    def __init__(self, description: Description) -> None:
        self._description = description
        self._opened: _Opened | None = None
        self._confirmed_lsn = 0
        self._is_silent = False
        self._heartbeat: asyncio.Task[None] | None = None
        self._problems: dict[str, str] = {}
        self._advances: GroupCommit[Sequence[AdvanceItem], None] = GroupCommit(self._commit)

    async def open_stream(self) -> AsyncIterator[tuple[PostgresMessage, PostgresMessage]]:
        """Start the slot and yield the changes of the tables without end.

        Raises:
            UpstreamError: The connection, a right, a table or a setting is missing, or the slot has lost changes.
            StreamError: The server does not answer, or the slot has another reader.
        """
        opened = await self._open()
        reader, replication = opened.reader, opened.replication
        wait_seconds = self._status_seconds(opened)
        self._heartbeat = asyncio.create_task(self._beat(opened, wait_seconds), name="headrace postgres status")
        while True:
            frame = replication.read()
            if frame is None:
                arrived = await replication.wait(wait_seconds)
                self._check_alive(replication, arrived)
                continue
            for message in reader.receive(frame):
                yield message, message
            if reader.asks_reply:
                reader.asks_reply = False
                self._send_status(opened)

    async def _open(self) -> _Opened:
        description = self._description
        parameters = connect_parameters(await aget_connection(description.connection))
        import_library("PostgreSQL cannot be read: its client library", "postgres", "psycopg")
        server = await ServerSession.connect(parameters)
        try:
            try:
                replication = await ReplicationSession.connect(parameters)
            except (UpstreamError, StreamError) as error:
                raise role_error(server.info, error) from error
            try:
                self._opened = await self._start(server, replication)
            except BaseException:
                await replication.close()
                raise
        except BaseException:
            await server.close()
            raise
        return self._opened

    async def _start(self, server: ServerSession, replication: ReplicationSession) -> _Opened:
        description, slot = self._description, self._description.slot
        birthmark = birthmark_of(*await replication.identify(), server.info.database)
        await prepare_publication(server, description.publication, description.tables, create=description.create_publication)
        progress, lanes, recorded_lsn = None, {}, None
        if description.progress_table is not None:
            progress = ProgressTable(server.connection, description.progress_table, slot)
            stored = await progress.open()
            lanes, recorded_lsn = {lane: LaneState(position) for lane, position in stored.lanes.items()}, stored.confirmed_lsn
            if self.log is not None:
                await self.log.check(stored.mark)
        info = await server.slot(slot)
        if info is None:
            if recorded_lsn is not None or (self.log is not None and self.log.mark.receipts):
                raise lost_slot(slot, f"slot {slot!r} does not exist, and it was read before.")
            await server.create_slot(slot)
            log.info("replication slot created", slot=slot)
        else:
            check_slot(slot, info, server.info.database)
        await replication.start(slot, description.publication)
        info = await server.slot(slot)
        if info is None:
            raise lost_slot(slot, f"slot {slot!r} was dropped.")
        if progress is not None:
            if recorded_lsn is not None:
                progress.check_slot(info.confirmed_lsn)
                await progress.remove_old()
            else:
                await progress.store(info.confirmed_lsn, {}, self._mark)
        transactions = TransactionLog(info.confirmed_lsn)
        transactions.lanes.update(lanes)
        self._confirmed_lsn = info.confirmed_lsn
        formatter = self._formatter(server.info.database)
        reader = SlotReader(description.tables, formatter, slot, birthmark, transactions)
        return _Opened(server, replication, progress, formatter, reader, transactions)

    def _formatter(self, database: str) -> Formatter:
        description = self._description
        if description.format == "outbox":
            return OutboxFormatter(description.payload, description.key, description.lane)
        return ChangesFormatter() if description.format == "changes" else DebeziumFormatter(description.slot, database)

    @property
    def _mark(self) -> LogMark | None:
        return None if self.log is None else self.log.mark

    @staticmethod
    def _status_seconds(opened: _Opened) -> float:
        timeout = opened.server.info.sender_timeout_ms / 1_000
        return min(STATUS_SECONDS, timeout / 4) if timeout > 0 else STATUS_SECONDS

    async def _beat(self, opened: _Opened, seconds: float) -> None:
        """Send a status regularly, also while the stream takes no raw events, and confirm what passes without one."""
        while True:
            await asyncio.sleep(seconds)
            passed = opened.transactions.floor - self._confirmed_lsn
            if passed > (0 if opened.progress is None else MAX_IDLE_WAL_BYTES):
                await self._advances.submit(())
            opened.replication.confirm(opened.reader.received_lsn, self._confirmed_lsn, asks_reply=True)
            missing = await missing_tables(opened.server, self._description.publication, self._description.tables)
            self._problems = {table: f"The publication does not have {table}: its changes are not delivered." for table in missing}

    def _check_alive(self, replication: ReplicationSession, arrived: bool) -> None:
        if self._heartbeat is not None and self._heartbeat.done() and not self._heartbeat.cancelled():
            self._heartbeat.result()
        if not arrived and time.monotonic() - replication.received_at > STALL_SECONDS:
            self._is_silent = True
            raise StreamError(
                f"PostgreSQL has sent nothing for {STALL_SECONDS:g} s.", hint="Is the network between here and the server interrupted?"
            )

    def _send_status(self, opened: _Opened) -> None:
        opened.replication.confirm(opened.reader.received_lsn, self._confirmed_lsn)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Confirm the transactions that are answered, in one call with the batches of other lanes that wait.

        Raises:
            UpstreamError: The slot is missing or invalidated.
            StreamError: The server does not answer.
        """
        await self._advances.submit(batch)

    def get_advance_lane(self, broker_payload: PostgresMessage) -> Hashable:
        """Return the value of the lane column, or the slot, with the birthmark of the database."""
        return broker_payload.lane

    def get_position(self, broker_payload: PostgresMessage) -> int | None:
        """Return the position: the LSN of the commit and the index of the change."""
        return broker_payload.position

    def get_lane_end(self, lane: Hashable) -> int | None:
        """Return the position of the last delivered raw event. What the server has not sent yet is unknown."""
        state = None if self._opened is None else self._opened.transactions.lanes.get(str(lane))
        return None if state is None else state.end

    def get_committed(self, lane: Hashable) -> int | None:
        """Return the last position that is not delivered again, or None if it is unknown."""
        state = None if self._opened is None else self._opened.transactions.lanes.get(str(lane))
        return None if state is None else state.committed

    def get_errors(self) -> Mapping[str, str]:
        """Return the tables that lack a declared column, or that the publication no longer has."""
        return self._problems if self._opened is None else {**self._opened.formatter.problems, **self._problems}

    async def aclose(self) -> None:
        """End both sessions. The next reader can start at once."""
        try:
            if self._heartbeat is not None:
                self._heartbeat.cancel()
                await asyncio.gather(self._heartbeat, return_exceptions=True)
            await self._advances.aclose()
        finally:
            if self._opened is not None:
                if self._is_silent:
                    await self._opened.replication.cancel()
                await self._opened.replication.close()
                await self._opened.server.close()

    async def _commit(self, batches: list[Sequence[AdvanceItem]]) -> list[None]:
        opened = self._opened
        if opened is None:
            raise StreamError("The reading of PostgreSQL has not begun.")
        transactions = opened.transactions
        for batch in batches:
            for item in batch:
                if item.broker_payload.transaction is None:
                    raise StreamError("A raw event of another process cannot be confirmed.")
                transactions.answer(item.broker_payload, failed=bool(item.outcome.failed))
        transactions.settle()
        floor, received = transactions.floor, opened.reader.received_lsn
        if opened.progress is not None:
            lanes = transactions.answered_lanes()
            if lanes or floor > opened.progress.confirmed_lsn:
                await opened.progress.store(floor, lanes, self._mark)
                transactions.stored(lanes)
            if floor > self._confirmed_lsn:
                opened.replication.confirm(received, floor)
        elif floor > self._confirmed_lsn:
            opened.replication.confirm(received, floor)
            await opened.server.wait_until_confirmed(self._description.slot, floor)
        self._confirmed_lsn = max(self._confirmed_lsn, floor)
        transactions.confirmed()
        return [None] * len(batches)
