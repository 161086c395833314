"""Copy dead letters to a stream of Redis or Valkey. XADD creates a stream that does not exist: a key has no settings to get wrong.

A program may delete the key when it has handled all copies. With NOMKSTREAM, the next copies would then wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from headrace.errors import HeadraceError, UpstreamError
from headrace.ports.dead_letter_sender import DeadLetterCopy, DeadLetterSender
from headrace.sources.connections.client_library import import_library
from headrace.sources.dead_letters.message import PREFIX, copied_headers, copied_value
from headrace.sources.dead_letters.time_limit import time_limit
from headrace.sources.redis.client import ANSWER_SECONDS, cancellable, create_client
from headrace.sources.redis.errors import described
from headrace.sources.redis.message import EntryFormat
from headrace.sources.redis.settings import client_settings
from headrace.sources.redis.upstream import RedisStreams
from headrace.triggers.secrets import aget_connection

SEND_SECONDS: Final = 30.0
"""Time limit of one call, in which the connection is opened and all copies are answered."""
VALUE: Final = f"{PREFIX}value"
"""The field with the value of a message that has no fields."""
HINT: Final = "Is the server running, and not overloaded?"


class RedisDeadLetterSender(DeadLetterSender):
    """Sends copies as entries of a stream, all of one call in one pipeline."""

    def __init__(self, connection: str, stream: str, entries: EntryFormat) -> None:
        self._connection = connection
        self._stream = stream
        self._entries = entries
        self._redis: Any = None

    async def send(self, copies: Sequence[DeadLetterCopy]) -> Sequence[HeadraceError | None]:
        """Add the copies and wait for the answer to each.

        Raises:
            HeadraceError: The server refuses the connection or does not answer.
        """
        async with time_limit(SEND_SECONDS, f"stream {self._stream!r}", HINT):
            if self._redis is None:
                await self._open()
            return await self._add(copies)

    async def aclose(self) -> None:
        """Close the connection."""
        if self._redis is not None:
            await self._redis.aclose()

    async def _open(self) -> None:
        connection = await aget_connection(self._connection)
        library = await asyncio.to_thread(import_library, "Redis cannot be reached: its client library", "redis", "redis.asyncio")
        self._redis = create_client(library, client_settings(connection), ANSWER_SECONDS)

    async def _add(self, copies: Sequence[DeadLetterCopy]) -> list[HeadraceError | None]:
        from redis import exceptions

        what = f"A copy to stream {self._stream!r} was not sent"
        pipeline = self._redis.pipeline(transaction=False)
        for copy in copies:
            pipeline.execute_command("XADD", self._stream, "*", *entry_fields(copy, self._entries))
        try:
            answers = await cancellable(pipeline.execute(raise_on_error=False))
        except (exceptions.RedisError, OSError, TimeoutError) as error:
            raise described(what, error) from error
        return [described(what, answer) if isinstance(answer, Exception) else None for answer in answers]


def entry_fields(copy: DeadLetterCopy, entries: EntryFormat) -> list[bytes]:
    """Return names and values in turn: the fields of the entry as the upstream reads them, then those of the dead letter."""
    metadata = copy.metadata
    value, is_original = copied_value(copy, entries.decode)
    fields = copied_headers(copy, None if is_original else entries.decode, has_key=entries.key is not None)
    names = {name for name, _ in fields}
    if entries.payload is not None:
        fields.insert(0, (entries.payload, value))
    elif metadata is None or not metadata.headers:  # else the value is an object of these fields
        fields.insert(0, (VALUE, value))
    if entries.key is not None and metadata is not None and metadata.key is not None and entries.key not in names:
        fields.insert(0, (entries.key, metadata.key.encode()))
    return [part for name, content in fields for part in (name.encode(), content)]


def make_sender(upstream: RedisStreams) -> RedisDeadLetterSender:
    """Return the sender to the dead-letter stream of an upstream."""
    description = upstream.description()
    if description.dead_letter_stream is None:
        raise UpstreamError(f"{upstream.stream_key()} has no dead-letter stream.")
    return RedisDeadLetterSender(description.connection, description.dead_letter_stream, description.format)
