"""Reads the partitions, each with a consumer and a task of its own, and watches the consumers and the partitions.

What the stream does not take stays in the queues of the client, which are limited in messages, and at the broker. After a reconnect the
broker delivers again what is not acknowledged: each lane skips what it has delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import structlog

from headrace.errors import HeadraceError, StreamEnded, StreamError
from headrace.sources.declared_decoder import decoder_of
from headrace.sources.inbox import Inbox
from headrace.sources.pulsar.acknowledgements import EXPIRED, Acknowledgements
from headrace.sources.pulsar.client import PulsarClient
from headrace.sources.pulsar.lane import Delivered, Lane
from headrace.sources.pulsar.message import message_id_of, raw_event
from headrace.sources.pulsar.server_errors import AWAY, described, result_of
from headrace.sources.pulsar.subscriptions import Description, Subscriptions
from headrace.triggers.raw_event import Message

WATCH_SECONDS: Final = 5.0
MAX_UNCONFIRMED_LOOKS: Final = 4
"""Looks in a row at which a consumer is not connected, or the admin API does not answer, before the stream ends."""
MIN_QUEUE_MESSAGES: Final = 10

log = structlog.get_logger(__name__)


class Reader:
    """Reads all partitions until `stop`. `problems` names what may be lost, by topic."""

    def __init__(self, client: PulsarClient, description: Description, subscriptions: Subscriptions, acks: Acknowledgements) -> None:
        self.problems = subscriptions.problems
        self.lanes: dict[str, Lane] = {}
        self._client = client
        self._description = description
        self._subscriptions = subscriptions
        self._acks = acks
        self._inbox: Inbox[Delivered] = Inbox()
        self._consumers: dict[str, Any] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._unconfirmed: dict[str, int] = {}
        self._is_stopped = False

    async def start(self, name: str) -> None:
        """Become the consumer `name` of all partitions, and begin to read. Raises `HeadraceError`."""
        partitions = await self._subscriptions.find()
        queue = max(MIN_QUEUE_MESSAGES, self._description.receiver_queue_size // len(partitions))
        adding = [asyncio.ensure_future(self._add(partition, name, queue)) for partition in partitions]
        try:
            await asyncio.gather(*adding)
        finally:
            for one in adding:
                one.cancel()
            await asyncio.wait(adding)
        self._run(self._watch(name), "watch")

    async def next(self) -> tuple[Message, Delivered]:
        """Return the next message. Raises the error that ended the reading, once all messages before it are taken."""
        return await self._inbox.next()

    async def acknowledge(self, target: Delivered) -> None:
        """Acknowledge all messages of a lane up to one. Raises as `Acknowledgements.acknowledge`."""
        await self._acks.acknowledge(self._consumers[target.lane.name], target)

    def stop(self) -> None:
        """Read no more messages."""
        self._is_stopped = True
        for name, task in self._tasks.items():
            if name in self.lanes:
                task.cancel()

    def fail(self, failure: HeadraceError) -> None:
        """End the reading with this error."""
        if self._inbox.failure is None:
            self._inbox.end(failure)
            self.stop()

    @property
    def failure(self) -> HeadraceError | None:
        """The error that ended the reading."""
        return self._inbox.failure

    async def aclose(self) -> None:
        """End the tasks, and release the consumers."""
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())
        self._tasks.clear()
        self._consumers.clear()

    async def _add(self, partition: str, name: str, queue: int) -> None:
        consumer = await self._client.subscribe(partition, self._description.subscription, name, queue)
        lane = self.lanes[partition] = Lane(partition)
        self._consumers[partition] = consumer
        self._look(lane, await self._acks.look(lane))
        if not self._is_stopped:
            self._run(self._receive(lane, consumer), partition)

    def _run(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=f"headrace pulsar {name}")
        task.add_done_callback(self._report)
        self._tasks[name] = task

    def _report(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(described("The reading of Pulsar failed", error))

    async def _receive(self, lane: Lane, consumer: Any) -> None:
        decoding = self._description.decode
        decode = decoder_of(decoding)
        while True:
            message = await consumer.receive()
            client_id = message.message_id()
            id = message_id_of(client_id)
            if lane.deliver(id):
                event = raw_event(message, lane.name, id, decode, decoding)
                await self._inbox.put((event, Delivered(lane, id, client_id)))

    async def _watch(self, name: str) -> None:
        """Look regularly at the consumers and the partitions."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                for lane in list(self.lanes.values()):
                    self._look(lane, await self._acks.look(lane))
                    await self._ping(lane)
                for partition in await self._subscriptions.add(set(self.lanes)):
                    await self._add(partition, name, MIN_QUEUE_MESSAGES)
                    log.info("partition of pulsar added", partition=partition)
                self._unconfirmed.pop("", None)
            except StreamEnded:
                raise
            except StreamError as error:
                self._count_unconfirmed("", error)

    async def _ping(self, lane: Lane) -> None:
        """Send a request on the connection of a consumer, and end the reading without an answer: the client itself takes a minute."""
        name = f"{lane.name}, connection"
        try:
            await self._consumers[lane.name].get_last_message_id()
            self._unconfirmed.pop(name, None)
        except Exception as error:
            failure = described(f"The broker of {lane.name} sends nothing", error)
            if result_of(error) == "NotConnected":  # the client connects again by itself
                self._count_unconfirmed(name, failure)
                return
            raise StreamEnded(str(failure), hint=failure.hint) from error

    def _look(self, lane: Lane, consumer: Mapping[str, Any] | None) -> None:
        if consumer is None:
            what = f"The consumer of subscription {self._description.subscription!r} of {lane.name} is not connected"
            self._count_unconfirmed(lane.name, StreamError(f"{what}.", hint=AWAY))
            return
        self._unconfirmed.pop(lane.name, None)
        if not lane.waits:
            lane.observe(consumer)
        if consumer[EXPIRED]:
            self._report_expired(lane, int(consumer[EXPIRED]))

    def _report_expired(self, lane: Lane, count: int) -> None:
        problem = (
            f"About {count:,} messages expired before they were acknowledged, since the broker loaded the topic: the time to live of the "
            "namespace is too short. Expired messages that no reader had received are lost."
        )
        if self.problems.get(lane.name) != problem:
            log.error("messages of pulsar expired", partition=lane.name, count=count)
            self.problems[lane.name] = problem

    def _count_unconfirmed(self, name: str, error: HeadraceError) -> None:
        """Raise `StreamEnded` with the error after it has repeated MAX_UNCONFIRMED_LOOKS times."""
        self._unconfirmed[name] = self._unconfirmed.get(name, 0) + 1
        log.warning("consumer of pulsar not confirmed", lane=name, reason=str(error))
        if self._unconfirmed[name] >= MAX_UNCONFIRMED_LOOKS:
            raise StreamEnded(str(error), hint=error.hint) from error
