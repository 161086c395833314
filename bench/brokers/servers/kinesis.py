"""Kinesis: a stream of moto with four shards, and a table of DynamoDB for the progress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import aiobotocore.session
import botocore.session
from bench.brokers.broker import BATCH, Advanced, Broker, Send, value

from headrace import Kinesis

TABLE: Final = "headrace-kinesis"
INTERVAL_SECONDS: Final = 0.2
"""Between two requests to a shard that has no more records, as AWS allows five per second."""
HASH_KEYS: Final = 2**128
CREDENTIALS: Final = {"region_name": "us-east-1", "aws_access_key_id": "x", "aws_secret_access_key": "y"}


class Server(Broker):
    """Moto, which has all data in memory. The group of a reader has the name of the stream."""

    server = "moto"
    source = "a stream of moto with 4 shards"
    count = "positions of the shards in the table"
    lanes: ClassVar[int] = 4
    messages: ClassVar[int] = 50_000
    rate: ClassVar[int] = 500

    def __init__(self, address: str) -> None:
        super().__init__(address)
        session = botocore.session.get_session()
        self._streams: Any = session.create_client("kinesis", endpoint_url=f"http://{address}", **CREDENTIALS)
        self._tables: Any = session.create_client("dynamodb", endpoint_url=f"http://{address}", **CREDENTIALS)
        self._tables.create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("reader", "shard")],
            KeySchema=[{"AttributeName": "reader", "KeyType": "HASH"}, {"AttributeName": "shard", "KeyType": "RANGE"}],
        )

    @property
    def connection(self) -> str:
        return f"aws://x:y@{self.address}?region=us-east-1&scheme=http"

    def upstream(self, name: str) -> Kinesis:
        return Kinesis(name, connection="bench", group=name, interval=INTERVAL_SECONDS)

    def create(self, name: str) -> None:
        self._streams.create_stream(StreamName=name, ShardCount=self.lanes)

    def drop(self, name: str) -> None:
        self._streams.delete_stream(StreamName=name)

    @contextmanager
    def sender(self, name: str) -> Iterator[Send]:
        def send(numbers: Sequence[int]) -> None:
            for start in range(0, len(numbers), BATCH):
                self._put(name, numbers[start : start + BATCH])

        yield send

    @contextmanager
    def observer(self, name: str) -> Iterator[Advanced]:
        yield lambda: self._positions(name)

    def _put(self, name: str, numbers: Sequence[int]) -> None:
        records = [
            {"Data": value(n), "PartitionKey": "k", "ExplicitHashKey": str(HASH_KEYS // self.lanes * (n % self.lanes))} for n in numbers
        ]
        answer = self._streams.put_records(StreamName=name, Records=records)
        if answer["FailedRecordCount"]:
            raise SystemExit(f"Records are not stored: {answer}")

    def _positions(self, name: str) -> list[int]:
        answer = self._tables.query(
            TableName=TABLE,
            KeyConditionExpression="reader = :reader",
            ExpressionAttributeValues={":reader": {"S": _reader(name)}},
            ConsistentRead=True,
        )
        positions = {item["shard"]["S"].partition("@")[0]: int(item.get("position", {"N": "0"})["N"]) for item in answer["Items"]}
        positions.pop("reader", None)
        return [positions[shard] for shard in sorted(positions)] or [0] * self.lanes

    @staticmethod
    def read(address: str, name: str) -> None:
        asyncio.run(_read(address, name))


async def _read(address: str, name: str) -> None:
    session = aiobotocore.session.get_session()
    async with (
        session.create_client("kinesis", endpoint_url=f"http://{address}", **CREDENTIALS) as streams,
        session.create_client("dynamodb", endpoint_url=f"http://{address}", **CREDENTIALS) as tables,
    ):
        shards = (await streams.list_shards(StreamName=name))["Shards"]
        await asyncio.gather(*(_read_shard(streams, tables, name, shard["ShardId"]) for shard in shards))


async def _read_shard(streams: Any, tables: Any, name: str, shard: str) -> None:
    answer = await streams.get_shard_iterator(StreamName=name, ShardId=shard, ShardIteratorType="TRIM_HORIZON")
    iterator, position = answer["ShardIterator"], 0
    while True:
        requested = time.monotonic()
        answer = await streams.get_records(ShardIterator=iterator, Limit=BATCH)
        iterator = answer["NextShardIterator"]
        if answer["Records"]:
            position += len(answer["Records"])
            item = {"reader": {"S": _reader(name)}, "shard": {"S": f"{shard}@bare"}, "position": {"N": str(position)}}
            await tables.put_item(TableName=TABLE, Item=item)
        if not answer["MillisBehindLatest"]:
            await asyncio.sleep(max(0.0, requested + INTERVAL_SECONDS - time.monotonic()))


def _reader(name: str) -> str:
    """Return the name of a reader in the table, as Headrace forms it from the group and the stream."""
    return f"{name}/{name}"
