"""A bucket of a test, with a connection and upstreams of its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

from headrace.sources.objects.bucket import Bucket
from headrace.sources.objects.producer import BUCKETS, ObjectProducer
from headrace.sources.objects.upstream import ObjectStore
from headrace.testing.contract.broker import Broker
from headrace.triggers.secrets import aget_connection
from headrace.triggers.upstream import Upstream
from support.processes.azurite import Azurite
from support.processes.broker_server import connection_variable
from support.processes.fake_gcs import FakeGcs
from support.processes.versitygw import VersityGateway

INTERVAL_SECONDS = 0.2

ObjectServer: TypeAlias = VersityGateway | FakeGcs | Azurite


class TestBucket:
    """A bucket of a server. Listings follow each other quickly, so that tests need not wait."""

    __test__ = False

    def __init__(self, server: ObjectServer) -> None:
        self.server = server
        self.name = server.create_bucket()
        self.connection = f"objects_{secrets.token_hex(4)}"
        os.environ[connection_variable(self.connection)] = server.connection

    @property
    def url(self) -> str:
        """The folder that upstreams read."""
        return f"{self.server.scheme}://{self.name}/in"

    def put(self, name: str, content: bytes | Sequence[bytes]) -> str:
        """Write an object of the folder, and return its ETag."""
        body = content if isinstance(content, bytes) else b"".join(line + b"\n" for line in content)
        return self.server.put(self.name, f"in/{name}", body)

    def delete(self, name: str) -> None:
        """Delete an object of the folder."""
        self.server.delete(self.name, f"in/{name}")

    def state_keys(self) -> list[str]:
        """Return the keys of the state."""
        return self.server.keys(self.name, "in/.headrace/")

    async def open(self) -> Bucket:
        """Return a client of the bucket."""
        return await BUCKETS[self.server.scheme](await aget_connection(self.connection), self.name)

    def upstream(self, **arguments: Any) -> ObjectStore:
        """Return an upstream of the folder."""
        named: dict[str, Any] = {"connection": self.connection, "interval": INTERVAL_SECONDS} | arguments
        return ObjectStore(self.url, **named)

    def producer(self, **arguments: Any) -> ObjectProducer:
        """Return a new producer of the folder."""
        return self.upstream(**arguments).producer()

    def close(self) -> None:
        """Delete the bucket and drop the connection."""
        os.environ.pop(connection_variable(self.connection), None)
        self.server.delete_bucket(self.name)


MakeBucket = Callable[..., TestBucket]


class BucketBroker(Broker):
    """A bucket of its own. Messages that are sent at once are one object, which is a lane."""

    growable: ClassVar[bool] = False

    def __init__(self, server: ObjectServer) -> None:
        self._bucket = TestBucket(server)
        self._sent = 0

    def send(self, lane: str, messages: Sequence[bytes]) -> None:
        self._sent += 1
        self._bucket.put(f"{lane}/{self._sent:06}.jsonl", messages)

    def upstream(self) -> Upstream:
        return self._bucket.upstream(read="lines")

    def close(self) -> None:
        self._bucket.close()
