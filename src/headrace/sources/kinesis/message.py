"""Records of Kinesis as raw events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.sources.declared_decoder import Decoding, decoder_of
from headrace.sources.decoding import Decoder, decode_again, decoded_message
from headrace.sources.kinesis.aggregation import sub_records
from headrace.sources.kinesis.client import Record, Shard
from headrace.sources.kinesis.lanes import Delivered, Lane
from headrace.triggers.raw_event import Message


class Body(NamedTuple):
    """What becomes one raw event: a record, or a record within an aggregated one. The ids of the latter have a `suffix`."""

    key: str
    data: bytes
    suffix: str = ""


def bodies(record: Record, shard: Shard) -> Iterator[Body]:
    """Yield what a record of a shard has. Of an aggregated one, records that belong to another shard are left out.

    After a split or a merge, a sender may still put records of other shards into one. It sends them again to the right one.
    """
    parts = sub_records(record.data)
    if parts is None:
        yield Body(record.key, record.data)
        return
    for part in parts:
        if shard.first_hash <= part.hash_key <= shard.last_hash:
            yield Body(part.key, part.data, f"/{part.number}")


def deliver(lane: Lane, record: Record, birthmark: str, decode: Decoder) -> Iterator[tuple[Message, Delivered]]:
    """Yield the raw events of a record that its lane has not read before, and record that they are read.

    With the birthmark of the stream, their ids are unique over all streams that had its name.
    """
    skipped = lane.skip(record.sequence)
    if skipped is None:
        return
    for number, body in enumerate(bodies(record, lane.shard), 1):
        if number <= skipped:
            continue
        payload = lane.deliver(record.sequence, number, record.arrived_ms)
        event = decoded_message(
            decode,
            body.data,
            lane.name,
            payload.position,
            key=body.key,
            timestamp_ms=record.arrived_ms,
            id=f"{lane.shard.id}@{birthmark}/{record.sequence}{body.suffix}",
        )
        yield event, payload


def decode_message_again(message: Message, decode: Decoding) -> Message:
    """Return a malformed message, decoded again."""
    return decode_again(decoder_of(decode), message)
