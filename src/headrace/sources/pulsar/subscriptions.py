"""The subscriptions of an upstream: which partitions there are, and where the reading of new ones begins."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import structlog

from headrace.errors import UpstreamError
from headrace.sources.declared_decoder import Decoding
from headrace.sources.pulsar.admin import AdminApi
from headrace.sources.pulsar.topics import partition_names
from headrace.sources.start import Start

log = structlog.get_logger(__name__)


class Description(NamedTuple):
    """The arguments of a `Pulsar` upstream, as its producer needs them."""

    topics: Sequence[str]
    subscription: str
    connection: str
    start: Start
    decode: Decoding
    receiver_queue_size: int
    dead_letter_topic: str | None = None


class Subscriptions:
    """The partitions of the topics. `problems` names the topics whose subscriptions were missing."""

    def __init__(self, admin: AdminApi, description: Description, *, was_read: bool) -> None:
        self.problems: dict[str, str] = {}
        self._admin = admin
        self._description = description
        self._was_read = was_read

    async def find(self) -> list[str]:
        """Return the partitions of all topics, each with a subscription, which is created if it is missing.

        Raises:
            UpstreamError: A topic or a permission is missing, or messages may be lost.
            StreamError: The admin API does not answer.
        """
        topics = await asyncio.gather(*(self._find(topic) for topic in self._description.topics))
        return [partition for partitions in topics for partition in partitions]

    async def add(self, known: set[str]) -> list[str]:
        """Return the partitions that are not known, each with a subscription at its first message. Raises as `find` does."""
        counts = await asyncio.gather(*map(self._admin.partitions, self._description.topics))
        names = [name for topic, count in zip(self._description.topics, counts, strict=True) for name in partition_names(topic, count)]
        added = [name for name in names if name not in known]
        for name in added:
            await self._admin.create_subscription(name, self._description.subscription, "earliest")
        return added

    async def _find(self, topic: str) -> list[str]:
        name = self._description.subscription
        partitions = partition_names(topic, await self._admin.partitions(topic))
        present = await asyncio.gather(*(self._admin.find_subscription(partition, name) for partition in partitions))
        missing = [partition for partition, one in zip(partitions, present, strict=True) if one is None]
        if len(missing) < len(partitions):  # the others are new partitions
            for partition in missing:
                await self._admin.create_subscription(partition, name, "earliest")
            return partitions
        if self._was_read:
            self._report(topic)
        await asyncio.gather(*map(self._create, missing))
        return partitions

    def _report(self, topic: str) -> None:
        """Report that the subscription of a topic that was read is missing. Raises `UpstreamError` if its messages would be skipped."""
        name = self._description.subscription
        lost = f"Subscription {name!r} of topic {topic} is missing, and the topic was read before: one of them was deleted."
        if self._description.start == "latest":
            raise UpstreamError(
                f"Messages may be lost: {lost[0].lower()}{lost[1:]}",
                hint='Set start="earliest" or a time: events that are stored are recognised. Or create the subscription with pulsar-admin.',
            )
        log.error("subscription of pulsar missing", topic=topic, subscription=name)
        self.problems[topic] = f"{lost} It is read again from its start. Events that are stored are recognised."

    async def _create(self, partition: str) -> None:
        name, start = self._description.subscription, self._description.start
        # A kill between both requests leaves a subscription that begins too early, and skips nothing.
        await self._admin.create_subscription(partition, name, "latest" if start == "latest" else "earliest")
        if isinstance(start, datetime):
            await self._admin.reset_subscription(partition, name, int(start.timestamp() * 1_000))
