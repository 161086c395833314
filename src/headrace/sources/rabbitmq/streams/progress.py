"""What Headrace keeps at the server for each stream and group: the offset, the birthmark, and the lock of the reader.

AMQP stores no offset for a consumer of a stream. So each stream has beside it:

- a durable queue of length 1, whose message is the last note: the committed offset and the mark of the event log. A commit is one confirmed
  message, which replaces the one before.
- an exclusive queue without messages. The server deletes it with the connection that declared it, and refuses it to others meanwhile. The
  notes are sent on the same connection. So a reader that has lost its lock can no longer commit.
- an exchange that is bound to the stream, and receives nothing. The server deletes it with the stream. Its name has the birthmark.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.progress_note import ProgressNote
from headrace.sources.rabbitmq.client import ANSWER_SECONDS, RabbitConnection
from headrace.sources.rabbitmq.server_errors import described, is_locked, is_missing
from headrace.triggers.stream_log import LogMark

TAKEOVER_SECONDS: Final = 3.0
"""For how long the lock or the note of an earlier opening may still be held. The server releases them after its connection has ended."""
RETRY_SECONDS: Final = 0.1
REQUEST_SECONDS: Final = 10.0
PERSISTENT: Final = 2
NOTE_ARGUMENTS: Final = {"x-queue-type": "classic", "x-max-length": 1}
PERMISSION_HINT: Final = (
    "Allow the user: rabbitmqctl set_permissions -p VHOST USER '^headrace\\.' '^(headrace\\..*|amq\\.default|STREAM)$' "
    "'^(headrace\\..*|STREAM)$'"
)
IN_USE_HINT: Final = "End the other reader, or give this one another group."


class OffsetNote(ProgressNote, omit_defaults=True, kw_only=True):
    """The note of a stream. `offset` is the committed one, or None before the first message. Commits are numbered."""

    number: int = 0
    birthmark: str | None = None
    offset: int | None = None


class Names(NamedTuple):
    """What one group keeps for one stream."""

    group: str
    stream: str

    @property
    def notes(self) -> str:
        """The queue of the notes."""
        return f"headrace.offset.{self.group}.{self.stream}"

    @property
    def lock(self) -> str:
        """The exclusive queue of the reader."""
        return f"headrace.reader.{self.group}.{self.stream}"

    def birth(self, birthmark: str) -> str:
        """The exchange that lives as long as the stream."""
        return f"headrace.birth.{self.group}.{self.stream}.{birthmark}"


class Progress:
    """The progress of one stream. `publishing` is a channel of the same connection, with confirms."""

    def __init__(self, connection: RabbitConnection, names: Names, publishing: Any = None) -> None:
        self._connection = connection
        self._names = names
        self._publishing = publishing
        self._number = 0

    async def lock(self) -> None:
        """Become the reader, until the connection ends.

        Raises:
            StreamError: There is another reader, or the server does not answer.
            UpstreamError: The user may not declare the lock.
        """
        until = time.monotonic() + TAKEOVER_SECONDS
        while True:
            try:
                async with self._connection.temporary_channel() as channel:
                    await channel.queue_declare(self._names.lock, exclusive=True, timeout=REQUEST_SECONDS)
                    return
            except Exception as error:
                if not is_locked(error):
                    raise rejection(f"Stream {self._names.stream!r} cannot be locked", error) from None
            if time.monotonic() > until:
                raise StreamError(
                    f"Stream {self._names.stream!r} cannot be read: it has another reader of the group {self._names.group!r}.",
                    hint=IN_USE_HINT,
                )
            await _pause()

    async def read(self) -> OffsetNote | None:
        """Return the last note, or None if the group has not read the stream. Declares the queue of the notes if it is missing.

        Raises:
            UpstreamError: The user has no permission, or another program has sent a message to the queue of the notes.
            StreamError: The server does not answer.
        """
        until = time.monotonic() + TAKEOVER_SECONDS
        try:
            if await self._is_missing(lambda channel: channel.queue_declare(self._names.notes, passive=True, timeout=REQUEST_SECONDS)):
                async with self._connection.temporary_channel() as channel:
                    await channel.queue_declare(self._names.notes, durable=True, arguments=NOTE_ARGUMENTS, timeout=REQUEST_SECONDS)
                return None
            while (note := await self.look()) is None and time.monotonic() < until:
                await _pause()  # an earlier reader, or a peek, may hold the note
        except Exception as error:
            raise rejection(f"The offset of stream {self._names.stream!r} cannot be read", error) from None
        self._number = 0 if note is None else note.number
        return note

    async def look_up(self) -> OffsetNote | None:
        """Return the last note, or None if there is none. Declares nothing. Raises `HeadraceError`."""
        try:
            if await self._is_missing(lambda channel: channel.queue_declare(self._names.notes, passive=True, timeout=REQUEST_SECONDS)):
                return None
            return await self.look()
        except Exception as error:
            raise rejection(f"The offset of stream {self._names.stream!r} cannot be read", error) from None

    async def look(self) -> OffsetNote | None:
        """Return the last note and leave it in its queue, or None if there is none. Raises the errors of the client."""
        from pamqp.commands import Basic

        notes: list[OffsetNote] = []
        async with self._connection.temporary_channel() as channel:  # its end returns the notes to the queue
            while True:
                message = await channel.basic_get(self._names.notes, timeout=REQUEST_SECONDS)
                if isinstance(message.delivery, Basic.GetEmpty):
                    break
                note = OffsetNote.parse(bytes(message.body).decode(errors="replace"))
                if note.birthmark is None:
                    raise UpstreamError(
                        f"Queue {self._names.notes!r} has a message of another program.", hint="Purge the queue if no reader has used it."
                    )
                notes.append(note)
        return max(notes, key=lambda note: note.number, default=None)

    async def store(self, birthmark: str, offset: int | None, mark: LogMark | None) -> None:
        """Store the next note, and wait until the server has it on disk. Raises `HeadraceError`."""
        from pamqp.commands import Basic

        self._number += 1
        note = OffsetNote(number=self._number, birthmark=birthmark, offset=offset)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._publishing.basic_publish(
                    note.text(mark).encode(),
                    routing_key=self._names.notes,
                    mandatory=True,
                    properties=Basic.Properties(delivery_mode=PERSISTENT, content_type="application/json"),
                )
        except Exception as error:
            raise rejection(f"The offset of stream {self._names.stream!r} cannot be stored", error) from error

    async def is_born(self, birthmark: str) -> bool:
        """Return whether the stream is the one that got this birthmark. Raises `HeadraceError`."""
        name = self._names.birth(birthmark)
        try:
            return not await self._is_missing(lambda channel: channel.exchange_declare(name, passive=True, timeout=REQUEST_SECONDS))
        except Exception as error:
            raise rejection(f"The birthmark of stream {self._names.stream!r} cannot be read", error) from None

    async def give_birthmark(self, birthmark: str) -> None:
        """Bind an exchange to the stream that ends with it. Raises `HeadraceError`."""
        name = self._names.birth(birthmark)
        try:
            async with self._connection.temporary_channel() as channel:
                await channel.exchange_declare(
                    name, exchange_type="fanout", durable=True, auto_delete=True, internal=True, timeout=REQUEST_SECONDS
                )
                await channel.queue_bind(self._names.stream, name, timeout=REQUEST_SECONDS)
        except Exception as error:
            raise rejection(f"Stream {self._names.stream!r} cannot get a birthmark", error) from None

    async def _is_missing(self, declare: Callable[[Any], Awaitable[Any]]) -> bool:
        try:
            async with self._connection.temporary_channel() as channel:
                await declare(channel)
        except Exception as error:
            if is_missing(error):
                return True
            raise
        return False


def rejection(what: str, error: BaseException) -> HeadraceError:
    """Return the error of Headrace for an exception of the client. If a permission is missing, it names all that a stream needs."""
    return described(what, error, permission_hint=PERMISSION_HINT)


async def _pause() -> None:
    await asyncio.sleep(RETRY_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311
