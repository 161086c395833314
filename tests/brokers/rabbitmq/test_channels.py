"""Numbers of channels: a number that a refused request has freed is used again as late as possible."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiormq.exceptions import ChannelNotFoundEntity

from headrace.core.connection import parse_connection
from headrace.errors import UpstreamError
from headrace.sources.rabbitmq.client import RabbitConnection
from headrace.sources.rabbitmq.settings import address_of
from support.processes import rabbitmq

pytestmark = [pytest.mark.brokers, pytest.mark.xdist_group("rabbitmq")]


@pytest.fixture
async def connection() -> AsyncIterator[RabbitConnection]:
    address = address_of(parse_connection("shop", f"amqp://guest:guest@{rabbitmq.shared().address}/"))
    ends: list[BaseException] = []
    opened = await RabbitConnection.open(address, ends.append)
    yield opened
    await opened.close()
    assert ends == []


async def refused(connection: RabbitConnection) -> int:
    """Look for a missing queue, so that the server closes the channel, and return its number."""
    with pytest.raises(ChannelNotFoundEntity):
        async with connection.temporary_channel() as channel:
            await channel.queue_declare("missing", passive=True)
    return int(channel.number)


async def test_the_number_of_a_refused_channel_is_not_used_at_once(connection: RabbitConnection) -> None:
    assert [await refused(connection) for _ in range(3)] == [1, 2, 3]


async def test_numbers_start_again_after_the_last_one_and_omit_open_channels(connection: RabbitConnection) -> None:
    connection._connection.connection_tune.channel_max = 4
    first = await connection.channel()
    assert [await refused(connection) for _ in range(5)] == [2, 3, 4, 2, 3]
    channels = [first, *[await connection.channel() for _ in range(3)]]
    assert sorted(channel.number for channel in channels) == [1, 2, 3, 4]
    with pytest.raises(UpstreamError, match="has 4 channels, and the server allows no more"):
        await connection.channel()
    await channels[2].close()
    assert (await connection.channel()).number == channels[2].number
