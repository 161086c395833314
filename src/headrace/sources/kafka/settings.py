"""The settings of librdkafka that a connection describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from headrace.core.connection import Connection
from headrace.core.values.shards import WHOLE, Shard
from headrace.errors import UpstreamError
from headrace.sources.declared_decoder import Decoding

DEFAULT_PORT: Final = 9092
KIND: Final = "kafka"
SHARD_HEARTBEAT_MILLISECONDS: Final = 1_000
CONFLUENT: Final = "confluent"
OAUTHBEARER: Final = "OAUTHBEARER"
UNSIGNED: Final = frozenset({"sasl.oauthbearer.config", "enable.sasl.oauthbearer.unsecure.jwt"})
"""Settings by which the client makes unsigned tokens itself, for tests of a cluster."""

KafkaDecoding: TypeAlias = Decoding | Literal["confluent"]
"""How a value becomes JSON; `confluent` needs a schema registry."""

DEFAULTS: Final[Mapping[str, Any]] = {
    "client.id": "headrace",
    "isolation.level": "read_committed",
    "topic.metadata.refresh.interval.ms": 10_000,
    "queued.max.messages.kbytes": 16 * 1024,
    "queued.min.messages": 50_000,
    "fetch.queue.backoff.ms": 10,  # by default, a client whose queue was full fetches nothing for 1 s
    "fetch.error.backoff.ms": 100,
    "reconnect.backoff.max.ms": 2_000,
    "socket.timeout.ms": 30_000,  # for a silent connection; by default 60 s
}
"""Settings that a connection may change."""
ASSIGNOR: Final = "partition.assignment.strategy"
OWN: Final = (
    "group.id",
    "group.instance.id",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "enable.partition.eof",
    ASSIGNOR,
)
"""Settings that the upstream itself makes. Those of a connection are ignored."""


def client_settings(connection: Connection) -> dict[str, Any]:
    """Return the settings with which any client of the cluster connects. Raises `UpstreamError` if there is no address."""
    extra = {name: value for name, value in connection.extra.items() if name not in OWN}
    if connection.kind != KIND:
        raise UpstreamError(
            f"Connection '{connection.id}' is of kind {connection.kind!r}, not {KIND!r}.",
            hint=f"Set it like this: {KIND}://user:password@broker.example:{DEFAULT_PORT}",
        )
    settings: dict[str, Any] = {}
    if connection.host:
        settings["bootstrap.servers"] = _servers(connection.host, connection.port or DEFAULT_PORT)
    mechanism = str(extra.get("sasl.mechanism", extra.get("sasl.mechanisms", ""))).upper()
    if mechanism == OAUTHBEARER:
        settings |= _token_settings(connection, extra)
    elif connection.login is not None:
        settings |= {"sasl.username": connection.login, "sasl.password": connection.password or ""}
        if not mechanism:
            settings["sasl.mechanism"] = "PLAIN"
    if mechanism or connection.login is not None:
        settings["security.protocol"] = "SASL_SSL"
    elif any(name.startswith("ssl.") for name in extra):
        settings["security.protocol"] = "SSL"
    settings |= extra
    if not settings.get("bootstrap.servers"):
        raise UpstreamError(
            f"Connection '{connection.id}' has no address of a broker.",
            hint=f"Give it a host, or bootstrap.servers: {KIND}://broker.example:{DEFAULT_PORT}",
        )
    return settings


def _token_settings(connection: Connection, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings by which the client requests tokens. Login and password are the client's id and secret."""
    settings: dict[str, Any] = {}
    if not UNSIGNED.intersection(extra):
        settings["sasl.oauthbearer.method"] = "oidc"
    if connection.login is not None:
        settings |= {"sasl.oauthbearer.client.id": connection.login, "sasl.oauthbearer.client.secret": connection.password or ""}
    if not any(name.startswith("https.ca.") for name in extra):
        # By default, the client looks for the authorities of the system where only some systems have them.
        settings["https.ca.location"] = "probe"
    return settings


def consumer_settings(connection: Connection, group: str, member: str, shard: Shard = WHOLE) -> dict[str, Any]:
    """Return the settings of the only consumer of a group, or of one shard. Raises `UpstreamError`.

    A classic group has `member` as a static member: the next consumer replaces a killed one at once, and fences it. A group of the
    protocol of KIP-848 refuses the next consumer until the session of the killed one has ended, so that it has no static member.

    The consumers of shards are members of one group. The first has the name of an only consumer, which it replaces. A rebalance
    interrupts all of them, so that they look for one more often.
    """
    settings = dict(DEFAULTS) | client_settings(connection)
    if shard.total > 1:
        if uses_new_protocol(settings):
            raise UpstreamError(
                f"shards={shard.total} needs a classic group, and connection '{connection.id}' sets group.protocol=consumer.",
                hint="Remove group.protocol from the extra of the connection, or leave out shards.",
            )
        settings = {"heartbeat.interval.ms": SHARD_HEARTBEAT_MILLISECONDS} | settings | {ASSIGNOR: "range,roundrobin"}
        member = member if shard.number == 0 else f"{member}-{shard.number}"
    if not uses_new_protocol(settings):
        settings["group.instance.id"] = member
    return settings | {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
    }


def uses_new_protocol(settings: Mapping[str, Any]) -> bool:
    """Return whether the group uses the protocol of KIP-848."""
    return settings.get("group.protocol") == "consumer"


def ignored_settings(connection: Connection) -> list[str]:
    """Return the settings of the connection that the upstream makes itself."""
    return [name for name in OWN if name in connection.extra]


def _servers(hosts: str, port: int) -> str:
    """Return the addresses of one or several hosts, separated by commas, with the port where they have none."""
    parts = [host.strip() for host in hosts.split(",") if host.strip()]
    if len(parts) == 1 and ":" in parts[0] and not parts[0].startswith("["):
        single = parts[0]
        return single if single.count(":") == 1 else f"[{single}]:{port}"
    return ",".join(host if _has_port(host) else f"{host}:{port}" for host in parts)


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdecimal() and ":" in host
