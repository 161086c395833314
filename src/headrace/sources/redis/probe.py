"""Probe of a connection to a server of Redis or Valkey."""

from __future__ import annotations

from typing import Any, Final

from headrace.core.connection import Connection
from headrace.sources.connections.client_library import import_library
from headrace.sources.redis.errors import described
from headrace.sources.redis.settings import client_settings

PROBE_SECONDS: Final = 10.0


def probe(connection: Connection) -> str:
    """Connect, and return the kind, the version, the database and the user.

    Raises:
        UpstreamError: The client library is missing, or the server refuses the credentials.
        StreamError: The server does not answer.
    """
    import_library("Redis cannot be reached: its client library", "redis", "redis")
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    settings = client_settings(connection)
    limits: dict[str, Any] = {"socket_timeout": PROBE_SECONDS, "socket_connect_timeout": PROBE_SECONDS, "retry": Retry(NoBackoff(), 0)}
    try:
        with redis.Redis(**settings, **limits, client_name="headrace", protocol=2) as client:
            info = client.info("server")
            user = client.acl_whoami()
    except (redis.RedisError, OSError) as error:
        raise described("The connection to Redis failed", error) from error
    name, version = ("Valkey", info["valkey_version"]) if "valkey_version" in info else ("Redis", info["redis_version"])
    return f"{name} {version}: database {settings['db']}, user {_text(user)}, mode {info.get('redis_mode', 'unknown')}"


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
