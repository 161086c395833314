"""Moto, a real server with the protocols of Kinesis and DynamoDB, on loopback, for tests with the mark `brokers`. All data is in memory."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import httpx

from support.processes.broker_server import BrokerServer, require_server
from support.processes.shared_servers import shared_server

INSTALLED = "moto-5.2.5/bin/moto_server"
REGION = "us-east-1"
TABLE = "headrace-kinesis"
MAX_SENT_RECORDS = 500
MAX_SENT_BYTES = 4_000_000


class Moto(BrokerServer):
    """One server, with the table of the progress."""

    def __init__(self) -> None:
        super().__init__("moto")
        self.kinesis = self._client("kinesis")
        self.dynamodb = self._client("dynamodb")
        self.create_table(TABLE)

    def _client(self, service: str) -> Any:
        import botocore.config
        import botocore.session

        return botocore.session.get_session().create_client(
            service,
            region_name=REGION,
            endpoint_url=f"http://{self.address}",
            aws_access_key_id="x",
            aws_secret_access_key="y",
            config=botocore.config.Config(retries={"total_max_attempts": 5}),
        )

    def close(self) -> None:
        self.kinesis.close()
        self.dynamodb.close()
        super().close()

    def create_table(self, name: str, *, range_key: str = "shard") -> None:
        """Create a table with the keys that the guide names."""
        self.dynamodb.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("reader", range_key)],
            KeySchema=[{"AttributeName": "reader", "KeyType": "HASH"}, {"AttributeName": range_key, "KeyType": "RANGE"}],
        )

    def create_stream(self, shards: int = 1, name: str | None = None) -> str:
        """Create a stream, and return its name."""
        name = name or f"stream-{secrets.token_hex(6)}"
        self.kinesis.create_stream(StreamName=name, ShardCount=shards)
        return name

    def send(self, stream: str, values: Sequence[bytes], *, key: str = "k", hash_key: int | None = None) -> None:
        """Send records in their order."""
        hashed = {} if hash_key is None else {"ExplicitHashKey": str(hash_key)}
        batch: list[dict[str, Any]] = []
        size = 0
        for value in values:
            if len(batch) == MAX_SENT_RECORDS or (batch and size + len(value) > MAX_SENT_BYTES):
                self._put(stream, batch)
                batch, size = [], 0
            batch.append({"Data": value, "PartitionKey": key} | hashed)
            size += len(value)
        self._put(stream, batch)

    def _put(self, stream: str, records: Sequence[dict[str, Any]]) -> None:
        answer = self.kinesis.put_records(StreamName=stream, Records=records)
        assert not answer["FailedRecordCount"], answer

    def shards(self, stream: str) -> list[dict[str, Any]]:
        """Return the descriptions of the shards."""
        shards: list[dict[str, Any]] = self.kinesis.list_shards(StreamName=stream)["Shards"]
        return shards

    def control(self, action: str, stream: str, count: int = 0) -> int:
        """Make a request that AWS does not have: see `scripts/brokers/moto/server.py`. Return the number of rejected requests so far."""
        answer = httpx.post(f"http://{self.address}/headrace/{action}/{stream}/{count}", trust_env=False, timeout=60)
        return int(answer.raise_for_status().text)


def require() -> None:
    """Skip the test, or fail it in CI, where the server or the client library is not installed."""
    require_server("moto", INSTALLED, library="aiobotocore")


@shared_server
def shared() -> Moto:
    """Return the server that all tests of this process share. Skip the test where it is not installed."""
    require()
    return Moto()
