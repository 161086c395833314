"""Acknowledgements, confirmed by what the broker says of the consumer.

The client takes an acknowledgement, sends it up to FLUSH_SECONDS later, and never learns whether it arrived. The broker shows in the
statistics of a consumer when it last received one. A lane has one acknowledgement on its way at a time, so a later time confirms it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from headrace.errors import StreamEnded, UpstreamFenced
from headrace.sources.pulsar.admin import AdminApi
from headrace.sources.pulsar.lane import Delivered, Lane
from headrace.sources.pulsar.server_errors import described

FLUSH_SECONDS: Final = 0.1
"""Time for which the client collects acknowledgements."""
CONFIRM_SECONDS: Final = 10.0
EXPIRED: Final = "totalMsgExpired"
"""The statistic of messages whose time to live ended before they were acknowledged, since the broker loaded the topic."""
SPACING_SECONDS: Final = 0.02
"""Time between two looks for confirmations: those of all lanes together are up to 50 per second."""


class Acknowledgements:
    """Acknowledges messages of one subscription, as the consumer `name`."""

    def __init__(self, admin: AdminApi, subscription: str, name: str) -> None:
        self._admin = admin
        self._subscription = subscription
        self._name = name
        self._turn = asyncio.Lock()

    async def acknowledge(self, consumer: Any, target: Delivered) -> None:
        """Acknowledge all messages of a lane up to one, and wait until the broker has received it.

        Raises:
            StreamEnded: The broker has not received it: the connection was lost.
            UpstreamFenced: Another consumer has the subscription.
            StreamError: The admin API does not answer. The call can be repeated.
        """
        lane = target.lane
        if lane.waits:
            await self._confirm(lane)
        if lane.confirmed is not None and target.id <= lane.confirmed:
            return
        lane.sent = target.id  # before the call: the broker may have received it when the call returns
        try:
            await consumer.acknowledge_cumulative(target.client_id)
        except Exception as error:
            raise described(f"Messages of {lane.name} cannot be acknowledged", error) from error
        await self._confirm(lane)

    async def look(self, lane: Lane) -> Mapping[str, Any] | None:
        """Return what the broker says of the consumer of a lane, or None if it is not connected.

        Raises:
            UpstreamFenced: Another consumer has the subscription.
            StreamError: The admin API does not answer.
        """
        subscription = await self._admin.find_subscription(lane.name, self._subscription) or {}
        consumers: list[Mapping[str, Any]] = subscription.get("consumers", [])
        for consumer in consumers:
            if consumer.get("consumerName") == self._name:
                return {**consumer, EXPIRED: subscription.get(EXPIRED, 0)}
        if consumers:
            raise UpstreamFenced(f"Another reader has taken over subscription {self._subscription!r} of {lane.name}.")
        return None

    async def _confirm(self, lane: Lane) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + CONFIRM_SECONDS
        await asyncio.sleep(FLUSH_SECONDS)
        while True:
            async with self._turn:
                await asyncio.sleep(SPACING_SECONDS)
            consumer = await self.look(lane)
            if consumer is not None and lane.observe(consumer):
                return
            if loop.time() > until:
                raise StreamEnded(
                    f"Messages of {lane.name} are acknowledged, and the broker has not received it after {CONFIRM_SECONDS:g} s. "
                    "They are read again, and recognised."
                )
