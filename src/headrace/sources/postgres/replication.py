"""The session that streams a slot: frames arrive through COPY, and status frames go back on the same connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import structlog

from headrace.errors import StreamError
from headrace.sources.postgres.decoding.pgoutput import status_frame
from headrace.sources.postgres.errors import described
from headrace.sources.postgres.server import answered

if TYPE_CHECKING:
    from psycopg import AsyncConnection

SLOT_WAIT_SECONDS: Final = 10.0
SLOT_ATTEMPT_SECONDS: Final = 0.1
CANCEL_SECONDS: Final = 5.0
READ: Final = "The slot cannot be read"

log = structlog.get_logger(__name__)


class ReplicationSession:
    """One open stream of a slot. `read` and `confirm` do not block."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self.received_at = time.monotonic()
        """When the last frame arrived, as of `time.monotonic`."""

    @classmethod
    async def connect(cls, parameters: Mapping[str, Any]) -> ReplicationSession:
        """Open the session. Raises `UpstreamError` or `StreamError`."""
        import psycopg

        try:
            return cls(await psycopg.AsyncConnection.connect(**parameters, replication="database", autocommit=True))
        except psycopg.Error as error:
            raise described("The replication connection to PostgreSQL failed", error) from error

    async def identify(self) -> tuple[str, int]:
        """Return the identifier of the database system, and its timeline."""
        import psycopg

        try:
            row = await (await answered(self._connection.execute("IDENTIFY_SYSTEM"))).fetchone()
        except psycopg.Error as error:
            raise described(READ, error) from error
        if row is None:
            raise StreamError(f"{READ}: the server does not identify itself.")
        return str(row[0]), int(row[1])

    async def start(self, slot: str, publication: str) -> None:
        """Start the stream at the confirmed LSN of the slot. A slot that another session has in use is waited for.

        Raises:
            StreamError: Another reader has the slot after SLOT_WAIT_SECONDS.
            UpstreamError: A right or the publication is missing.
        """
        import psycopg
        from psycopg import sql

        option = sql.Literal(sql.Identifier(publication).as_string(self._connection))
        statement = sql.SQL("START_REPLICATION SLOT {} LOGICAL 0/0 (proto_version '1', publication_names {})").format(
            sql.Identifier(slot), option
        )
        until = time.monotonic() + SLOT_WAIT_SECONDS
        while True:
            try:
                await answered(self._connection.execute(statement))
            except psycopg.errors.ObjectInUse as error:
                if time.monotonic() > until:
                    raise StreamError(
                        f"Slot {slot!r} has another reader: {' '.join(str(error).split())}.",
                        hint="Stop the other reader, or give each upstream a slot of its own.",
                    ) from error
                await asyncio.sleep(SLOT_ATTEMPT_SECONDS)
            except psycopg.Error as error:
                raise described(READ, error) from error
            else:
                self.received_at = time.monotonic()
                return

    def read(self) -> bytes | None:
        """Return the next frame that has arrived, or None. Raises `StreamError` or `UpstreamError` if the stream has ended."""
        import psycopg

        try:
            size, data = self._pgconn.get_copy_data(1)
            if size > 0:
                return bytes(data)
            if size == 0:
                return None
            result = self._pgconn.get_result()
        except psycopg.Error as error:
            raise described(READ, error) from error
        if result is not None and result.error_message:
            raise described(READ, psycopg.errors.error_from_result(result))
        raise StreamError(f"{READ}: the server has ended the stream.", hint="It is opened again.")

    async def wait(self, seconds: float) -> bool:
        """Wait until data arrive, and take them into the buffer. Return False if none arrived in time."""
        import psycopg

        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            descriptor = self._pgconn.socket
            loop.add_reader(descriptor, ready.set)
            try:
                async with asyncio.timeout(seconds):
                    await ready.wait()
            except TimeoutError:
                return False
            finally:
                loop.remove_reader(descriptor)
            self._pgconn.consume_input()
        except psycopg.Error as error:
            raise described(READ, error) from error
        self.received_at = time.monotonic()
        return True

    def confirm(self, received: int, flushed: int, *, asks_reply: bool = False) -> None:
        """Send the LSN before which everything is durable. Raises `StreamError` if the connection is lost."""
        import psycopg

        try:
            self._pgconn.put_copy_data(status_frame(received, flushed, time.time_ns() // 1_000, asks_reply=asks_reply))
            self._pgconn.flush()
        except psycopg.Error as error:
            raise described("The slot cannot be confirmed", error) from error

    async def cancel(self) -> None:
        """End a stream whose connection is silent, over another one. Otherwise, the server keeps the slot for it until its timeout."""
        import psycopg

        if not psycopg.capabilities.has_cancel_safe():
            return
        try:
            await self._connection.cancel_safe(timeout=CANCEL_SECONDS)
        except psycopg.Error as error:
            log.info("silent stream of a slot not ended at the server", error=" ".join(str(error).split()))

    async def close(self) -> None:
        """End the session."""
        await self._connection.close()
