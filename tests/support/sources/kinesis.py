"""A stream of a test, with a connection and an upstream of its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from headrace.sources.kinesis.producer import KinesisProducer
from headrace.sources.kinesis.upstream import Kinesis
from headrace.testing.contract.broker import Broker
from headrace.triggers.upstream import Upstream
from support.processes.broker_server import connection_variable
from support.processes.moto import REGION, TABLE, Moto

GROUP = "shop"
INTERVAL_SECONDS = 0.2
MAX_HASH = 2**128


class KinesisStream:
    """A stream of a server."""

    def __init__(self, server: Moto, shards: int = 1) -> None:
        self.server = server
        self.name = server.create_stream(shards)
        self.connection = f"kinesis_{secrets.token_hex(4)}"
        self.set_address(server.address)

    def set_address(self, address: str, **settings: str) -> None:
        """Set the address of the connection."""
        extra = "".join(f"&{name}={value}" for name, value in settings.items())
        os.environ[connection_variable(self.connection)] = f"aws://x:y@{address}?region={REGION}&scheme=http{extra}"

    def send(self, values: Sequence[bytes], **arguments: Any) -> None:
        """Send records."""
        self.server.send(self.name, values, **arguments)

    def upstream(self, **arguments: Any) -> Kinesis:
        """Return an upstream of the stream."""
        named: dict[str, Any] = {"connection": self.connection, "group": GROUP, "interval": INTERVAL_SECONDS} | arguments
        return Kinesis(self.name, **named)

    def producer(self, **arguments: Any) -> KinesisProducer:
        """Return a new producer."""
        return self.upstream(**arguments).producer()

    def items(self) -> dict[str, dict[str, Any]]:
        """Return the items of the reader in the table, by shard."""
        answer = self.server.dynamodb.query(
            TableName=TABLE,
            KeyConditionExpression="reader = :reader",
            ExpressionAttributeValues={":reader": {"S": f"{GROUP}/{self.name}"}},
            ConsistentRead=True,
        )
        return {item["shard"]["S"].partition("@")[0]: item for item in answer["Items"]}

    def set_times(self, shard: str, time_ms: int) -> None:
        """Set the times in the item of a shard, as if its reader had stopped then."""
        key = {name: self.items()[shard][name] for name in ("reader", "shard")}
        self.server.dynamodb.update_item(
            TableName=TABLE,
            Key=key,
            UpdateExpression="SET arrived = :time, known = :time",
            ExpressionAttributeValues={":time": {"N": str(time_ms)}},
        )

    def stored(self) -> int:
        """Return how many events are stored as advanced, over all shards."""
        return sum(int(item.get("position", {}).get("N", 0)) for item in self.items().values())

    def delete_progress(self) -> None:
        """Delete the items of the reader."""
        for item in self.items().values():
            self.server.dynamodb.delete_item(TableName=TABLE, Key={name: item[name] for name in ("reader", "shard")})

    def make_again(self) -> None:
        """Delete the stream, and create it again."""
        self.server.kinesis.delete_stream(StreamName=self.name)
        self.server.create_stream(name=self.name)

    def close(self) -> None:
        """Delete the stream and drop the connection."""
        os.environ.pop(connection_variable(self.connection), None)
        self.server.kinesis.delete_stream(StreamName=self.name)


MakeStream = Callable[..., KinesisStream]
"""Creates a stream on the shared server, by default with one shard."""


class KinesisBroker(Broker):
    """A stream of its own. A lane is a shard. The stream has 20 shards if the contract names 20 lanes, and 5 otherwise."""

    counted: ClassVar[bool] = True

    def __init__(self, server: Moto) -> None:
        self._server = server
        self._stream: KinesisStream | None = None
        self._shards = 0

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        many = lane.startswith("lane")
        stream = self._made(20 if many else 5)
        number = int(lane[-2:]) if many else "abcde".index(lane)
        stream.send(messages, hash_key=number * (MAX_HASH // self._shards))

    def upstream(self) -> Upstream:
        return self._made(5).upstream()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def _made(self, shards: int) -> KinesisStream:
        if self._stream is None:
            self._stream, self._shards = KinesisStream(self._server, shards), shards
        return self._stream
