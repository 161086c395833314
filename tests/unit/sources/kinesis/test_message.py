from __future__ import annotations

from hashlib import md5

from headrace.sources.decoding import DECODERS
from headrace.sources.kinesis.aggregation import MAGIC, hash_of
from headrace.sources.kinesis.client import Record, Shard
from headrace.sources.kinesis.lanes import Checkpoint, Lane
from headrace.sources.kinesis.message import deliver

KEYS = [f"user-{number}" for number in range(100)]
HALF = 2**127


def record(sequence: str) -> Record:
    """Return an aggregated record with one record for each key."""
    body = b"".join(b"\x0a" + bytes([len(key)]) + key.encode() for key in KEYS)
    body += b"".join(bytes([0x1A, 5, 0x08, index, 0x1A, 1]) + b"1" for index in range(len(KEYS)))
    return Record(sequence, KEYS[0], MAGIC + body + md5(body).digest(), 1)


def test_records_that_belong_to_another_shard_are_left_out_and_counted_once() -> None:
    lane = Lane("a@1", Shard("a", (), 0, HALF - 1), Checkpoint())
    own = [key for key in KEYS if hash_of(key) < HALF]
    messages = [message for message, _ in deliver(lane, record("1"), "b", DECODERS["json"])]
    assert [message.metadata.key for message in messages] == own
    assert lane.left_out == 100 - len(own) > 0
    assert list(deliver(lane, record("1"), "b", DECODERS["json"])) == []  # read again after an iterator has expired
    assert lane.left_out == 100 - len(own)


def test_a_record_without_any_of_its_shard_is_counted_once() -> None:
    lane = Lane("a@1", Shard("a", (), 0, 0), Checkpoint())
    for _ in range(2):
        assert list(deliver(lane, record("1"), "b", DECODERS["json"])) == []
        assert lane.left_out == 100
