"""Peek at a stream of Kinesis: read the shards from their checkpoints on, and store nothing."""

from __future__ import annotations

from headrace.sources.declared_decoder import decoder_of
from headrace.sources.kinesis.client import KinesisClient
from headrace.sources.kinesis.lanes import Checkpoint, Lane, iterator_of, ready_shards, start_ms
from headrace.sources.kinesis.message import deliver
from headrace.sources.kinesis.producer import KinesisArguments
from headrace.sources.kinesis.table import ProgressTable, Reader
from headrace.sources.kinesis.upstream import Kinesis
from headrace.sources.peeks import peek as port
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.secrets import aget_connection


async def peek(upstream: Kinesis, request: port.PeekRequest) -> port.Peek:
    """Return the records after the checkpoint of each shard that may be read now, or from the start of the upstream on."""
    arguments = upstream.arguments()
    connection = await aget_connection(arguments.connection)
    table_connection = await aget_connection(arguments.table_connection)
    client = await KinesisClient.open(connection, arguments.stream)
    try:
        table = await ProgressTable.open(table_connection, arguments.table, arguments.reader)
        try:
            return await _read(client, table, arguments, request)
        finally:
            await table.aclose()
    finally:
        await client.aclose()


async def _read(client: KinesisClient, table: ProgressTable, arguments: KinesisArguments, request: port.PeekRequest) -> port.Peek:
    info = await client.describe()
    progress = await table.read()
    reader = progress.reader
    if reader is None or reader.created != info.created:
        reader = Reader(0, "", info.created, start_ms("earliest" if reader else arguments.start, info.now_ms))
    shards = {shard.id: shard for shard in await client.shards()}
    stored = {id: progress.lanes.get(reader.lane(id), Checkpoint()) for id in shards}
    finished = {id for id, checkpoint in stored.items() if checkpoint.is_finished}
    ready = {reader.lane(shard.id): shard for shard in ready_shards(shards, finished, ())}
    decode = decoder_of(arguments.decode)
    lists: list[list[RawEvent]] = []
    notes = [f"Shard {id} is read once its parents are finished." for id in shards if id not in finished and reader.lane(id) not in ready]
    for name in port.matching_lanes(ready, request):
        shard = ready[name]
        lane = Lane(name, shard, stored[shard.id])
        iterator: str | None = await iterator_of(client, lane, reader.start_ms, info.now_ms - info.retention_ms)
        messages: list[RawEvent] = []
        size = 0
        while iterator is not None and len(messages) < request.limit and size < port.MAX_PEEK_BYTES:
            # One record more: the first may be the last one of the checkpoint.
            answer = await client.records(iterator, request.limit + 1)
            if answer is None:
                break
            for record in answer.records:
                messages += [message for message, _ in deliver(lane, record, info.birthmark, decode)]
            size = sum(len(message.data) for message in messages)
            iterator = answer.next if answer.behind_ms else None
        lists.append(messages[: request.limit])
    return port.Peek(port.in_turn(lists, request.limit), notes)
