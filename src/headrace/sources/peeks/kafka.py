"""Peek at topics of Kafka: a consumer that joins no group reads after the committed offsets, and commits nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import closing, nullcontext
from typing import Any

from headrace.core.connection import Connection
from headrace.sources.declared_decoder import decoder_of, is_function
from headrace.sources.decoding import Decoder
from headrace.sources.kafka.broker_errors import described
from headrace.sources.kafka.client import KafkaClient
from headrace.sources.kafka.group.assignment import Assignment
from headrace.sources.kafka.message import KafkaMessage, open_decoder, raw_event
from headrace.sources.kafka.partitions import Partitions, TopicPartitionKey, partitions_of
from headrace.sources.kafka.producer import Topics
from headrace.sources.kafka.settings import client_settings, consumer_settings
from headrace.sources.kafka.upstream import Kafka
from headrace.sources.peeks import peek as port
from headrace.triggers.secrets import aget_connection

POLL_SECONDS = 0.2
FETCH_MESSAGES = 100
SMALL_FETCHES: Mapping[str, Any] = {"queued.min.messages": 1_000, "queued.max.messages.kbytes": 4 * 1024}


async def peek(upstream: Kafka, request: port.PeekRequest) -> port.Peek:
    """Return the messages after the committed offsets of the group, or from the start of the upstream on."""
    topics = upstream.description()
    connection = await aget_connection(topics.connection)
    registry = None if topics.schema_registry is None else await aget_connection(topics.schema_registry)
    return await asyncio.to_thread(_peek, topics, connection, registry, request)


def _peek(topics: Topics, connection: Connection, registry: Connection | None, request: port.PeekRequest) -> port.Peek:
    client, until = reading_client(topics, connection)
    with closing(client):
        decode, schemas = open_decoder(topics.decode, registry)
        with nullcontext() if schemas is None else closing(schemas):
            if is_function(topics.decode):
                decode = decoder_of(topics.decode)
            return _read(client, topics, decode, request, until)


def reading_client(topics: Topics, connection: Connection) -> tuple[KafkaClient, float]:
    """Return a client outside of the group, and the end of its time (monotonic seconds)."""
    until = time.monotonic() + port.PEEK_SECONDS
    settings = {**consumer_settings(connection, topics.group, ""), **SMALL_FETCHES}
    settings.pop("group.instance.id", None)
    client = KafkaClient(settings, client_settings(connection), on_error=lambda _: None, is_stopped=lambda: time.monotonic() > until)
    return client, until


def _read(client: KafkaClient, topics: Topics, decode: Decoder, request: port.PeekRequest, until: float) -> port.Peek:
    client.check_topics(topics.topics)
    keys = partitions_of(client.partition_counts(), topics.topics)
    partitions = Partitions()
    assignment = Assignment(client, partitions, topics.start)
    offsets = assignment.begin(keys)
    lanes = port.matching_lanes([partition.lane for partition in partitions], request)
    chosen = {partition.key: partition for partition in partitions if partition.lane in lanes}
    notes = [f"{lane}: {gap}" for lane, gap in assignment.gaps.items() if lane in lanes]
    topic_partition = client.library.TopicPartition
    client.consumer.assign([topic_partition(key.topic, key.number, offsets[key]) for key in chosen])
    messages: dict[TopicPartitionKey, list[KafkaMessage]] = {key: [] for key in chosen}
    unfinished, size = set(chosen), 0
    while unfinished and size < port.MAX_PEEK_BYTES:
        if time.monotonic() > until:
            notes.append(f"The brokers have sent no more messages within {port.PEEK_SECONDS:g} s.")
            break
        for message in client.consumer.consume(FETCH_MESSAGES, POLL_SECONDS):
            error = message.error()
            if message.topic() is None or message.partition() is None:
                raise described("The topics cannot be read", error)
            key = TopicPartitionKey(message.topic(), message.partition())
            if key not in unfinished:
                continue
            if error is not None:
                if error.name() != "_PARTITION_EOF":
                    notes.append(str(described(f"Lane {chosen[key].lane} cannot be read", error)))
                unfinished.discard(key)
                continue
            messages[key].append(raw_event(message, decode, chosen[key], message.offset()))
            size += len(messages[key][-1].data)
            if len(messages[key]) == request.limit:
                unfinished.discard(key)
                client.consumer.pause([topic_partition(key.topic, key.number)])
    return port.Peek(port.in_turn(list(messages.values()), request.limit), notes)
