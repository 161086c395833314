"""Copies of dead letters on a real cluster: what each report says, and what the broker refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from headrace.core.values.message_text import MessageMetadata
from headrace.errors import CopyRejected, HeadraceError, StreamError, UpstreamError
from headrace.ports.dead_letter_sender import DeadLetterSender
from headrace.sources.dead_letters import kafka
from headrace.sources.dead_letters.sender import make_sender
from headrace.sources.kafka.upstream import Kafka
from support.processes.kafka import KafkaServer
from support.processes.ports import free_port
from support.sources.dead_letters import copies_in, copy_of
from support.sources.kafka import KafkaTopic, MakeTopic

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("kafka")]

CLOSE_SECONDS = 15.0


def sender_to(topic: KafkaTopic, name: str | None = None) -> DeadLetterSender:
    upstream = Kafka("orders", connection=topic.connection, group="shop", dead_letter_topic=name or topic.name)
    return make_sender(upstream)


@asynccontextmanager
async def opened(topic: KafkaTopic, name: str | None = None) -> AsyncIterator[DeadLetterSender]:
    sender = sender_to(topic, name)
    try:
        yield sender
    finally:
        async with asyncio.timeout(CLOSE_SECONDS):
            await sender.aclose()


def kinds(results: Sequence[HeadraceError | None]) -> list[type[HeadraceError] | None]:
    return [None if result is None else type(result) for result in results]


async def test_a_copy_has_the_bytes_the_key_and_the_headers_of_its_message_and_its_origin(topic: KafkaTopic) -> None:
    metadata = MessageMetadata("k1", (("trace", b"\xff\x00"), ("headrace-id", b"of an earlier copy"), ("none", None)), 1_700_000_000_000)
    async with opened(topic) as sender:
        whole, bare = copy_of(7, b"\xff\x00{", metadata, triggers=["paid", "sent"]), copy_of(8, lane=None, position=None)
        assert await sender.send([whole, bare]) == [None, None]
    first, second = copies_in(topic.server, topic.name)
    assert (first.key, first.value) == (b"k1", b"\xff\x00{")
    assert first.headers == {
        "trace": b"\xff\x00",
        "headrace-id": b"letter-7",
        "headrace-number": b"7",
        "headrace-kind": b"malformed",
        "headrace-reason": b"not JSON",
        "headrace-attempts": b"1",
        "headrace-time": b"2026-11-24T01:02:03.000000Z",
        "headrace-stream": b"orders",
        "headrace-lane": b"orders/0",
        "headrace-position": b"7",
        "headrace-triggers": b'["paid","sent"]',
        "headrace-timestamp": b"1700000000000",
    }
    assert (second.key, second.value) == (None, b"{")
    assert not {"headrace-lane", "headrace-position", "headrace-timestamp"} & second.headers.keys()


async def test_a_topic_refuses_a_large_copy_and_takes_the_others_of_the_same_request(make_topic: MakeTopic) -> None:
    topic = make_topic()
    small = topic.server.create_topic(settings={"max.message.bytes": "2000"})
    async with opened(topic, small) as sender:
        results = await sender.send([copy_of(number, b"x" * (5_000 if number == 3 else 900)) for number in range(8)])
        assert kinds(results) == [CopyRejected if number == 3 else None for number in range(8)]
        assert await sender.send([copy_of(9)]) == [None], "the sender goes on"
    assert {copy.number for copy in copies_in(topic.server, small)} == {0, 1, 2, 4, 5, 6, 7, 9}


async def test_a_compacted_topic_refuses_a_copy_without_a_key(topic: KafkaTopic) -> None:
    compacted = topic.server.create_topic(settings={"cleanup.policy": "compact"})
    async with opened(topic, compacted) as sender:
        results = await sender.send([copy_of(1, metadata=MessageMetadata("k")), copy_of(2), copy_of(3, b"null", MessageMetadata("k"))])
    assert kinds(results) == [None, CopyRejected, None]
    assert [copy.value for copy in copies_in(topic.server, compacted)][-1] == b"null", "not a tombstone"


async def test_a_topic_that_does_not_exist_is_an_error_and_is_not_created(topic: KafkaTopic) -> None:
    missing = f"{topic.name}-missing"
    async with opened(topic, missing) as sender:
        with pytest.raises(UpstreamError, match="does not exist") as error:
            await sender.send([copy_of(1)])
    assert error.value.hint is not None
    assert "Create it" in error.value.hint
    assert missing not in topic.server.admin.list_topics(timeout=10).topics


async def test_settings_of_the_connection_do_not_weaken_the_report(topic: KafkaTopic) -> None:
    topic.set_connection(topic.server.address, acks="0", enable_idempotence="false", retries="0", transactional_id="theirs")
    async with opened(topic) as sender:
        assert await sender.send([copy_of(number) for number in range(100)]) == [None] * 100
    assert [copy.number for copy in copies_in(topic.server, topic.name)] == [*range(100)]


async def test_a_cluster_that_does_not_answer_is_an_error_in_bounded_time(topic: KafkaTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "METADATA_SECONDS", 2.0)
    topic.set_connection(f"127.0.0.1:{free_port()}")
    async with opened(topic) as sender, asyncio.timeout(20):
        with pytest.raises(StreamError, match="does not answer"):
            await sender.send([copy_of(1)])


async def until_open(sender: DeadLetterSender) -> None:
    assert await sender.send([copy_of(0)]) == [None]


async def test_copies_to_a_broker_that_was_killed_are_not_confirmed_and_closing_is_quick(
    make_topic: MakeTopic, own_server: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "REPORT_SECONDS", 2.0)
    topic = make_topic(server=own_server)
    async with opened(topic) as sender:
        await until_open(sender)
        await asyncio.to_thread(own_server.kill)
        with pytest.raises(StreamError, match="not confirmed after 2 s"):
            await sender.send([copy_of(1)])
    await asyncio.to_thread(own_server.start)
    async with opened(topic) as sender:
        assert await sender.send([copy_of(1)]) == [None]
    assert [copy.number for copy in copies_in(own_server, topic.name)] == [0, 1]


async def test_a_cancelled_send_ends_at_once_and_its_sender_closes(make_topic: MakeTopic, own_server: KafkaServer) -> None:
    topic = make_topic(server=own_server)
    async with opened(topic) as sender:
        await until_open(sender)
        await asyncio.to_thread(own_server.kill)
        sending = asyncio.create_task(_send(sender))
        await asyncio.sleep(0)
        sending.cancel()
        async with asyncio.timeout(CLOSE_SECONDS):
            await asyncio.wait([sending])
        assert sending.cancelled()
    await asyncio.to_thread(own_server.start)


async def _send(sender: DeadLetterSender) -> None:
    await sender.send([copy_of(1)])
