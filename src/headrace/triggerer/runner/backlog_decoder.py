"""Decode the malformed messages of backlogs again, as the open stream decodes now.

A dead letter is redriven because the schema, the function or the format that was missing is there now. The producer of the stream has the
decoder; a function of the user runs in the process of the producer. Invariant: an error of the decoder concerns the message, any other
error the upstream: then the entry stays in the backlog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Final

import structlog

from headrace.core.values.message_text import METADATA_MARK
from headrace.core.values.text import describe_error
from headrace.errors import StreamError
from headrace.retry import Backoff
from headrace.streams.backlog import BacklogEntry
from headrace.streams.subscribers.raw_text import raw_event_from
from headrace.triggerer.process_pools.turn import ProcessEnded
from headrace.triggers.base import stream_name
from headrace.triggers.masking import mask
from headrace.triggers.raw_event import Message, message_with
from headrace.triggers.upstream import SharedStreamProducer

MAX_ENDED_PROCESSES: Final = 2
"""Processes that the decoding of one message may block or end, before the message is malformed for that reason."""
FIRST_WAIT_SECONDS: Final = 0.2
MAX_WAIT_SECONDS: Final = 30.0

log = structlog.get_logger(__name__)


class BacklogDecoder:
    """Decodes malformed messages again. `producer_of` returns the producer of a stream that is open."""

    def __init__(self, producer_of: Callable[[Hashable], SharedStreamProducer | None]) -> None:
        self._producer_of = producer_of

    async def decode(self, key: Hashable, entries: Sequence[BacklogEntry]) -> Sequence[BacklogEntry]:
        """Return the entries of a page of a stream's backlog, with malformed messages decoded. Waits while the upstream cannot decode.

        Messages of a former stream of the trigger stay malformed.
        """
        # The decoder of another stream would read the bytes as another format.
        here = stream_name(key)
        messages = [(entry, _malformed(entry) if entry.stream == here else None) for entry in entries]
        return [entry if message is None else entry._replace(decoded=await self._decoded(key, message)) for entry, message in messages]

    async def _decoded(self, key: Hashable, message: Message) -> Message:
        backoff = Backoff(FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS)
        ended = 0
        await asyncio.sleep(0)  # a page may have many
        while True:
            try:
                producer = self._producer_of(key)
                if producer is None:
                    raise StreamError("The stream is not open now.")
                return await producer.decode_again(message)
            except Exception as error:  # of the upstream, or of a producer of the user
                ended += isinstance(error, ProcessEnded)
                reason = mask(describe_error(error))
            if ended >= MAX_ENDED_PROCESSES:
                log.error("message not decoded again", stream=stream_name(key), lane=message.lane, position=message.position, reason=reason)
                return _malformed_with(message, f"Its decoder blocked or ended {ended} processes: {reason}")
            wait = backoff.next()
            log.warning("message not decoded yet", stream=stream_name(key), lane=message.lane, error=reason, retry_in=round(wait, 2))
            await asyncio.sleep(wait)


def _malformed(entry: BacklogEntry) -> Message | None:
    """Return the message of an entry whose value was malformed, or None for any other raw event."""
    if not entry.raw.startswith(METADATA_MARK):
        return None
    raw = raw_event_from(entry.raw, entry.lane, entry.position)
    return raw if isinstance(raw, Message) and raw.malformed is not None else None


def _malformed_with(message: Message, reason: str) -> Message:
    message = message_with(message.metadata, message.data, message.lane, message.position)
    message.malformed = reason
    return message
