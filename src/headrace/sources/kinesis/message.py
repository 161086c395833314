"""Records of Kinesis as raw events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


class Content(NamedTuple):
    """What a record of a shard has, and the number of records within an aggregated one that are left out."""

    bodies: Sequence[Body]
    left_out: int = 0


def content_of(record: Record, shard: Shard) -> Content:
    """Return what a record of a shard has. It takes up to a second for each MB of an aggregated record.

    Records that are left out belong to another shard by their hash keys. After a split or a merge, the Kinesis Producer Library
    still puts such records into one, and sends them again to the right shard. Other senders may not do so: the number is reported.
    """
    parts = sub_records(record.data)
    if parts is None:
        return Content([Body(record.key, record.data)])
    own = [Body(part.key, part.data, f"/{part.number}") for part in parts if shard.first_hash <= part.hash_key <= shard.last_hash]
    return Content(own, len(parts) - len(own))


def deliver(
    lane: Lane, record: Record, birthmark: str, decode: Decoder, content: Content | None = None
) -> Iterator[tuple[Message, Delivered]]:
    """Yield the raw events of a record that its lane has not read before, and record that they are read.

    With the birthmark of the stream, their ids are unique over all streams that had its name. `content` is the content of the record, if
    the caller has it.
    """
    skipped = lane.skip(record.sequence)
    if skipped is None:
        return
    bodies, left_out = content or content_of(record, lane.shard)
    lane.leave_out(record.sequence, left_out)
    for number, body in enumerate(bodies, 1):
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
