"""A broker that is killed and started again, one that cannot be reached, and one that is not there."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import StreamError, UpstreamFenced
from headrace.testing.contract.reading import reading
from support.processes.ports import free_port
from support.processes.pulsar import ProxiedPulsar
from support.sources.kit import PATIENCE
from support.sources.pulsar import MakeTopic, PulsarTopic
from support.sources.reading import numbers, numbers_of
from support.sources.resumed_reading import resumed_reading

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("pulsar-outages"), pytest.mark.timeout(3 * PATIENCE)]


async def test_a_reader_that_another_has_replaced_is_fenced(
    proxied_server: ProxiedPulsar, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection ends, and cannot be made again before another reader has the subscription."""
    monkeypatch.setattr("headrace.sources.pulsar.reader.WATCH_SECONDS", 0.2)
    server, proxy = proxied_server
    topic = make_topic(server=server)
    topic.set_connection(proxied_server.url)
    topic.send(numbers(0, 10))
    async with reading(topic.producer()) as first:
        items = await first.take(10)
        proxy.refuse()
        proxy.reset()
        topic.set_connection(server.url)
        async with reading(topic.producer()) as second:
            again = await second.take(10)
            with pytest.raises(UpstreamFenced, match="Another reader has taken over subscription 'shop'"):
                await first.take(1)
            with pytest.raises(UpstreamFenced):
                await first.advance(items[:4])
            proxy.calm()
            await second.advance(again[:6])
    async with reading(topic.producer()) as third:
        assert numbers_of(await third.take(1)) == [6]


async def test_a_killed_broker_loses_nothing_and_positions_do_not_go_back(proxied_server: ProxiedPulsar, make_topic: MakeTopic) -> None:
    own_server = proxied_server.server
    topic = make_topic(server=own_server)
    async with resumed_reading(topic.upstream()) as run:
        await asyncio.to_thread(topic.send, numbers(0, 40), batch=7)
        await run.advanced_up_to(20)
        run.is_storing.clear()
        await asyncio.to_thread(own_server.kill)
        await asyncio.to_thread(own_server.start)
        run.is_storing.set()
        await asyncio.to_thread(topic.send, numbers(40, 60))
        await run.stored_up_to(60)
        assert sorted(set(run.stored)) == list(range(60))
    forgotten = "is delivered after its advance"  # the broker stores the cursor once a second
    assert not [fault for fault in run.faults if forgotten not in fault]


async def test_a_broker_that_is_not_there_is_an_error_that_may_pass(topic: PulsarTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.pulsar.client.OPERATION_SECONDS", 1)
    topic.set_connection(f"pulsar://127.0.0.1:{free_port()}?admin_url=http://127.0.0.1:{free_port()}")
    with pytest.raises(StreamError, match="the service does not answer") as away:
        async with reading(topic.producer()) as stream:
            await stream.take(1)
    assert "admin_url" in str(away.value.hint)
    topic.set_connection(f"pulsar://127.0.0.1:{free_port()}?admin_url=http://127.0.0.1:{topic.server.web_port}")
    with pytest.raises(StreamError, match=r"cannot be read with subscription 'shop': .* \(\w+\)") as unreachable:
        async with reading(topic.producer()) as stream:
            await stream.take(1)
    assert "Is the broker running?" in str(unreachable.value.hint)
