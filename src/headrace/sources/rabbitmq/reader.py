"""One queue: its channel, its consumer, and the acknowledgement of its messages.

An acknowledgement covers all earlier deliveries of its channel, so each queue has a channel of its own. RabbitMQ does not confirm
acknowledgements. A request that follows them on the channel is answered after the server has taken them.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import structlog

from headrace.errors import HeadraceError, StreamEnded, StreamError
from headrace.sources.group_commit import GroupCommit
from headrace.sources.rabbitmq.client import ANSWER_SECONDS, RabbitConnection, end_of
from headrace.sources.rabbitmq.server_errors import described, is_in_use
from headrace.sources.rabbitmq.settlement import Answer, Settle, Settlement

TAKEOVER_SECONDS: Final = 3.0
"""For how long the consumer of an earlier opening may still be there. The server removes it after its connection has ended."""
RETRY_SECONDS: Final = 0.1
OPEN_SECONDS: Final = 20.0
"""For one request. After a restart, a quorum queue without a leader may leave one without an answer."""
IN_USE_HINT: Final = "End the other reader, or give this one a queue of its own, bound to the same exchange."

log = structlog.get_logger(__name__)

Answers = Sequence[tuple[int, Answer]]


class Arrival(NamedTuple):
    """A message as the client delivers it, and the reader of its queue."""

    reader: QueueReader
    message: Any


class QueueReader:
    """Reads one queue from `open` until its connection is closed.

    `on_arrival` gets each message, in order. `on_end` gets the error when the channel or the consumer ends. Neither may block.
    """

    def __init__(
        self,
        connection: RabbitConnection,
        queue: str,
        prefetch: int,
        on_arrival: Callable[[Arrival], None],
        on_end: Callable[[HeadraceError], None],
    ) -> None:
        self.queue = queue
        self._connection = connection
        self._prefetch = prefetch
        self._on_arrival = on_arrival
        self._on_end = on_end
        self._channel: Any = None
        self._is_closing = False
        self._failure: HeadraceError | None = None
        self._settlement = Settlement()
        self._commits: GroupCommit[Callable[[], list[Settle]], None] = GroupCommit(self._send)

    async def open(self) -> None:
        """Become the reader of the queue.

        Raises:
            UpstreamError: The queue does not exist, or the user may not read it.
            StreamError: The queue has another reader, or the server does not answer.
        """
        until, exclusive = time.monotonic() + TAKEOVER_SECONDS, True
        while True:
            try:
                if await self._try_open(exclusive=exclusive):
                    return
            except Exception as error:
                if not is_in_use(error):
                    raise described(f"Queue {self.queue!r} cannot be read", error) from None
                # The server refuses exclusive consumers for a queue with a single active consumer, in the same words.
                exclusive = not exclusive
            if time.monotonic() > until:
                raise StreamError(f"Queue {self.queue!r} cannot be read: it has another reader.", hint=IN_USE_HINT)
            await asyncio.sleep(RETRY_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311

    async def settle(self, answers: Answers) -> None:
        """Acknowledge, dead-letter or hold answered messages, in the order of their tags. Tags that are settled already change nothing.

        Raises:
            StreamEnded: The channel has ended: the server delivers its messages again.
            StreamError: The server does not answer.
        """
        now = time.monotonic()
        await self._commits.submit(lambda: self._settlement.answer(answers, now))

    async def requeue_failed(self, seconds: float) -> None:
        """Requeue the failed messages that are held for longer than `seconds`."""
        before = time.monotonic() - seconds
        if self._settlement.is_due(before):
            await self._commits.submit(lambda: self._settlement.requeue(before))
            log.warning("failed messages requeued", queue=self.queue, held_seconds=seconds)

    async def aclose(self) -> None:
        """Wait for running requests. The channel ends with its connection."""
        self._is_closing = True
        await self._commits.aclose()

    async def _try_open(self, *, exclusive: bool) -> bool:
        """Consume, or return False while the queue has another consumer. Raises the errors of the client."""
        channel = await self._connection.channel()
        if await self._count_consumers(channel):
            await channel.close(timeout=OPEN_SECONDS)
            return False
        await channel.basic_qos(prefetch_count=self._prefetch, timeout=OPEN_SECONDS)
        early: list[Any] = []
        consume = self._receive(channel, early)
        answer = await channel.basic_consume(self.queue, consume, exclusive=exclusive, timeout=OPEN_SECONDS)
        # A quorum queue ignores `exclusive`, so another reader may have come at the same time.
        if await self._count_consumers(channel) > 1:
            await channel.basic_cancel(answer.consumer_tag, timeout=OPEN_SECONDS)
            await channel.close(timeout=OPEN_SECONDS)
            return False
        self._channel = channel
        channel.on_consumer_cancel_callbacks.add(self._cancelled)
        channel.closing.add_done_callback(self._ended)
        for message in early:
            self._on_arrival(Arrival(self, message))
        return True

    async def _count_consumers(self, channel: Any) -> int:
        return int((await channel.queue_declare(self.queue, passive=True, timeout=OPEN_SECONDS)).consumer_count or 0)

    def _receive(self, channel: Any, early: list[Any]) -> Callable[[Any], Awaitable[None]]:
        """Return the callback of a consumer. Until the channel is that of the reader, messages go to `early`.

        A channel that is given up requeues them, and their delivery tags mean other messages on the next one.
        """

        async def receive(message: Any) -> None:
            if channel is self._channel:
                self._on_arrival(Arrival(self, message))
            else:
                early.append(message)

        return receive

    def _cancelled(self, frame: Any) -> None:
        del frame
        self._fail(
            StreamError(
                f"Queue {self.queue!r} was deleted, or its server has left the cluster: the server has cancelled the consumer.",
                hint="If the queue was deleted, its messages are lost. Create it again, or remove it from the upstream.",
            )
        )

    def _ended(self, closing: asyncio.Future[Any]) -> None:
        if not self._is_closing:
            self._fail(described(f"The reading of queue {self.queue!r} has ended", end_of(closing)))

    def _fail(self, error: HeadraceError) -> None:
        if self._failure is None:
            self._failure = error
            self._on_end(error)

    async def _send(self, groups: Sequence[Callable[[], list[Settle]]]) -> list[None]:
        """Send the frames of all groups, and wait until the server has taken them."""
        if self._failure is not None:
            raise StreamEnded(str(self._failure))
        done: list[None] = [None] * len(groups)
        frames = [frame for group in groups for frame in group()]
        if not frames:
            return done
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                for frame in frames:
                    if frame.ack:
                        await self._channel.basic_ack(frame.tag, multiple=frame.multiple, wait=False)
                    else:
                        await self._channel.basic_nack(frame.tag, requeue=frame.requeue, wait=False)
                await self._channel.basic_qos(prefetch_count=self._prefetch)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The client cancels its requests when it has missed heartbeats. The end of the connection is reported with its reason.
            raise StreamEnded(f"The messages of queue {self.queue!r} cannot be acknowledged: the connection has ended.") from None
        except Exception as error:
            failure = described(f"The messages of queue {self.queue!r} cannot be acknowledged", error)
            self._fail(failure)
            raise StreamEnded(str(failure)) from error
        return done
