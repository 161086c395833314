"""Redis or Valkey, a real server on loopback, for tests with the mark `brokers`."""

from __future__ import annotations

import secrets
import shutil
from importlib.util import find_spec
from typing import Any, Literal

import pytest

from support.processes.broker_server import BrokerServer, skip_or_fail
from support.processes.shared_servers import shared_server

Kind = Literal["redis", "valkey"]


class RedisServer(BrokerServer):
    """One server. `client` is another program's connection."""

    def __init__(self, kind: Kind, **settings: str) -> None:
        import redis

        super().__init__("redis", folder=None, **{"REDIS_KIND": kind} | settings)
        host, _, port = self.address.partition(":")
        tls: dict[str, Any] = {"ssl": True, "ssl_ca_certs": f"{settings['REDIS_TLS']}/ca.pem"} if "REDIS_TLS" in settings else {}
        self.client: Any = redis.Redis(host, int(port), decode_responses=True, **tls)

    def close(self) -> None:
        self.client.close()
        super().close()

    def create_key(self) -> str:
        """Return a key of its own."""
        return f"stream-{secrets.token_hex(6)}"


def require(kind: Kind) -> None:
    """Skip the test, or fail it in CI, where the server or the client library is not installed. Valkey may be missing in CI too."""
    if find_spec("redis") is None:
        skip_or_fail("redis-py is not installed: run `make setup-dev`.")
    if shutil.which(f"{kind}-server") is None:
        missing = f"{kind}-server is not installed: run `make setup-brokers`."
        skip_or_fail(missing) if kind == "redis" else pytest.skip(missing)


@shared_server
def shared(kind: Kind = "redis") -> RedisServer:
    """Return the server that all tests of this process share. Skip the test where it is not installed."""
    require(kind)
    return RedisServer(kind)
