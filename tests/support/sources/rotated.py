"""One upstream of each broker whose server accepts another secret from a moment on, while the upstream is read."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import psycopg
from psycopg import sql

from headrace.triggers.upstream import Upstream
from support.processes import azurite, elasticmq, mosquitto, moto, nats, rabbitmq, redis, secure_kafka, versitygw
from support.processes.azurite import Azurite
from support.processes.broker_server import SECONDS, connection_variable
from support.processes.certificates import Authority
from support.processes.mosquitto import MosquittoServer, set_passwords
from support.processes.nats import NatsServer
from support.processes.shared_servers import shared_server
from support.processes.token_gate import TokenGate
from support.sources import postgres
from support.sources.kinesis import KinesisStream
from support.sources.mqtt import MqttSession
from support.sources.nats import NatsStream
from support.sources.objects import TestBucket
from support.sources.postgres import DATABASE, OutboxTable
from support.sources.rabbitmq import RabbitQueue, RabbitStream
from support.sources.redis import RedisStream
from support.sources.secure_kafka import SecureTopic, secure_connection
from support.sources.sqs import SqsQueue


class Rotated(NamedTuple):
    """An upstream with the first of two secrets in its connection. `rotate` makes the server accept the second one only, at once."""

    upstream: Upstream
    connection: str
    urls: Sequence[str]
    """The value of the connection with each secret."""
    secrets: Sequence[str]
    send: Callable[[Sequence[bytes]], object]
    rotate: Callable[[], object]
    hint: str
    """A part of what the error says to do."""
    ordered: bool
    close: Callable[[], object]

    def set_secret(self, number: int) -> None:
        """Set the connection with the first or the second secret."""
        os.environ[connection_variable(self.connection)] = self.urls[number]


def _secrets() -> list[str]:
    return [f"secret-{secrets.token_hex(8)}" for _ in range(2)]


def _user() -> str:
    return f"reader_{secrets.token_hex(4)}"


def _kafka(shards: int = 1) -> Rotated:
    """The server ends no session. The client has to authenticate again after a while. Of several shards, the upstream reads the first."""
    server, user, values = secure_kafka.shared(), _user(), _secrets()
    server.set_scram_password(values[0], user)
    topic = SecureTopic(server)
    connections = [replace(secure_connection(server, "scram", "SHORT"), login=user, password=value) for value in values]
    return Rotated(
        topic.upstream(connections[0], shards=shards).split()[0],
        topic.connection,
        [one.url for one in connections],
        values,
        lambda messages: server.send(topic.name, messages),
        lambda: server.set_scram_password(values[1], user),
        "Correct the login and password",
        True,
        topic.close,
    )


def _postgres() -> Rotated:
    server, user, values = postgres.shared(), _user(), _secrets()
    table = OutboxTable(server)

    def execute(text: str, *parts: sql.Composable) -> None:
        with psycopg.connect(server.url(DATABASE), autocommit=True) as connection:
            connection.execute(sql.SQL(text).format(*parts))

    def end_sessions() -> None:
        execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = {}", sql.Literal(user))

    def rotate() -> None:
        execute("ALTER ROLE {} PASSWORD {}", sql.Identifier(user), sql.Literal(values[1]))
        end_sessions()

    def close() -> None:
        table.close()
        end_sessions()
        execute("DROP ROLE {}", sql.Identifier(user))

    execute("CREATE ROLE {} LOGIN REPLICATION PASSWORD {}", sql.Identifier(user), sql.Literal(values[0]))
    urls = [f"postgresql://{user}:{value}@127.0.0.1:{server.port}/{DATABASE}" for value in values]
    return Rotated(table.upstream(), table.connection, urls, values, table.send, rotate, "Correct the login and password", True, close)


def _redis() -> Rotated:
    server, user, values = redis.shared(), _user(), _secrets()
    stream = RedisStream(server)

    def set_password(value: str) -> None:
        server.client.acl_setuser(user, enabled=True, reset_passwords=True, passwords=[f"+{value}"], keys=["*"], categories=["+@all"])

    def rotate() -> None:
        set_password(values[1])
        server.client.execute_command("CLIENT", "KILL", "USER", user)

    def close() -> None:
        stream.close()
        server.client.acl_deluser(user)

    set_password(values[0])
    urls = [f"redis://{user}:{value}@{server.address}" for value in values]
    return Rotated(
        stream.upstream(), stream.connection, urls, values, stream.send, rotate, "Correct the login and the password", True, close
    )


def _nats_users(user: str, password: str) -> str:
    return f'authorization {{ users: [ {{ user: admin, password: admin }}, {{ user: {user}, password: "{password}" }} ] }}'


@shared_server
def _nats_server() -> NatsServer:
    nats.require("go")
    return NatsServer("go", _nats_users("nobody", "nothing"), user="admin", password="admin")


def _nats() -> Rotated:
    """The server ends the sessions of users whose password has changed."""
    server, user, values = _nats_server(), _user(), _secrets()
    server.reload(_nats_users(user, values[0]))
    stream = NatsStream(server)
    urls = [f"nats://{user}:{value}@{server.address}" for value in values]

    def rotate() -> None:
        server.reload(_nats_users(user, values[1]))

    return Rotated(stream.upstream(), stream.connection, urls, values, stream.send, rotate, "Correct the credentials", True, stream.close)


@cache
def _mqtt_passwords() -> Path:
    mosquitto.require()
    path = Path(tempfile.mkdtemp(prefix="headrace-mosquitto-passwords-")) / "passwords"
    set_passwords(path, {"admin": "admin"})
    return path


@shared_server
def _mqtt_server() -> MosquittoServer:
    return MosquittoServer(f"allow_anonymous false\npassword_file {_mqtt_passwords()}", login=("admin", "admin"))


def _mqtt() -> Rotated:
    """The server ends the sessions of users whose password has changed."""
    path, server, user, values = _mqtt_passwords(), _mqtt_server(), _user(), _secrets()

    def set_password(value: str) -> None:
        set_passwords(path, {"admin": "admin", user: value})
        server.reload()

    set_password(values[0])
    session = MqttSession(server)
    urls = [f"mqtt://{user}:{value}@{server.address}" for value in values]
    return Rotated(
        session.upstream(),
        session.connection,
        urls,
        values,
        session.send,
        lambda: set_password(values[1]),
        "Correct the login and password",
        True,
        session.close,
    )


def _rabbit(source: RabbitQueue, upstream: Upstream) -> Rotated:
    server, user, values = source.server, _user(), _secrets()
    server.create_user(user, values[0], ".*", configure=".*", write=".*")

    def rotate() -> None:
        server.create_user(user, values[1], ".*", configure=".*", write=".*")
        until = time.monotonic() + SECONDS
        while not server.close_connections():  # the server lists a connection some time after it was opened
            assert time.monotonic() < until, "the server lists no connection"
            time.sleep(0.05)

    def close() -> None:
        source.close()
        server.admin.delete(f"/users/{user}")

    urls = [f"amqp://{user}:{value}@{server.address}/" for value in values]
    return Rotated(upstream, source.connection, urls, values, source.send, rotate, "Correct the login and password", True, close)


def _rabbitmq() -> Rotated:
    queue = RabbitQueue(rabbitmq.shared())
    return _rabbit(queue, queue.upstream())


def _rabbitmq_streams() -> Rotated:
    stream = RabbitStream(rabbitmq.shared())
    return _rabbit(stream, stream.streams())


def _sqs() -> Rotated:
    server, values = elasticmq.shared(), _secrets()
    queue, gate = SqsQueue(server), TokenGate(server.address, values[0])
    urls = [f"sqs://x:y@{gate.address}?region=elasticmq&scheme=http&session_token={value}" for value in values]

    def rotate() -> None:
        gate.valid = values[1]

    def close() -> None:
        queue.close()
        gate.close()

    return Rotated(queue.upstream(), queue.connection, urls, values, queue.send, rotate, "with new credentials", False, close)


def _kinesis() -> Rotated:
    server, values = moto.shared(), _secrets()
    stream, gate = KinesisStream(server), TokenGate(server.address, values[0])
    urls = [f"aws://x:y@{gate.address}?region={moto.REGION}&scheme=http&session_token={value}" for value in values]

    def rotate() -> None:
        gate.valid = values[1]

    def close() -> None:
        stream.close()
        gate.close()

    return Rotated(stream.upstream(), stream.connection, urls, values, stream.send, rotate, "with new credentials", True, close)


def _bucket_sender(bucket: TestBucket) -> Callable[[Sequence[bytes]], object]:
    return lambda messages: bucket.put(f"{messages[0].decode()}.jsonl", messages)


def _s3() -> Rotated:
    return _versity(TestBucket(versitygw.shared()))


def _notified_s3() -> Rotated:
    """The queue of the notifications has another connection, which stays valid."""
    bucket, queue = TestBucket(versitygw.shared()), SqsQueue(elasticmq.shared())

    def send(messages: Sequence[bytes]) -> None:
        name = f"{messages[0].decode()}.jsonl"
        etag = bucket.put(name, messages)
        stored = {"key": quote(f"in/{name}", safe="/"), "size": sum(len(one) + 1 for one in messages), "eTag": etag}
        record = {
            "eventName": "ObjectCreated:Put",
            "eventTime": "2026-11-23T12:00:00.000Z",
            "s3": {"bucket": {"name": bucket.name}, "object": stored},
        }
        queue.send([json.dumps({"Records": [record]})])

    def close() -> None:
        bucket.close()
        queue.close()

    rotated = _versity(bucket, notifications=queue.upstream(decode="s3"), interval=None)
    return rotated._replace(send=send, close=close)


def _versity(bucket: TestBucket, **arguments: Any) -> Rotated:
    server, user, values = versitygw.shared(), _user(), _secrets()
    server.set_account(user, values[0])
    urls = [f"s3://{user}:{value}@{server.address}?region=us-east-1&scheme=http" for value in values]

    def rotate() -> None:
        server.set_account(user, values[1])

    upstream = bucket.upstream(read="lines", **arguments)
    return Rotated(
        upstream, bucket.connection, urls, values, _bucket_sender(bucket), rotate, "Correct the credentials", False, bucket.close
    )


@shared_server
def _azure_server() -> Azurite:
    azurite.require()
    return Azurite(authority=Authority(Path(tempfile.mkdtemp(prefix="headrace-azurite-tls-"))))


def _azure() -> Rotated:
    """Each secret is a shared access signature of an access policy of the container, which ends when the policy is replaced."""
    server = _azure_server()
    bucket, policies = TestBucket(server), ["first", "second"]
    server.set_policy(bucket.name, policies[0])
    signatures = [server.policy_access(bucket.name, policy) for policy in policies]
    urls = [f"azure://{server.located}&sas_token={quote(signature, safe='')}" for signature in signatures]

    def rotate() -> None:
        server.set_policy(bucket.name, policies[1])

    values = [signature.rpartition("sig=")[2] for signature in signatures]
    upstream = bucket.upstream(read="lines")
    return Rotated(
        upstream,
        bucket.connection,
        urls,
        values,
        _bucket_sender(bucket),
        rotate,
        "Do the SAS token or the key of the connection still allow",
        False,
        bucket.close,
    )


ROTATED: Final[Mapping[str, Callable[[], Rotated]]] = {
    "kafka": _kafka,
    "kafka-shards": partial(_kafka, shards=2),
    "postgres": _postgres,
    "redis": _redis,
    "nats": _nats,
    "mqtt": _mqtt,
    "rabbitmq": _rabbitmq,
    "rabbitmq-streams": _rabbitmq_streams,
    "sqs": _sqs,
    "kinesis": _kinesis,
    "s3": _s3,
    "s3-notified": _notified_s3,
    "az": _azure,
}
"""How the upstream of a broker is made. The loopback servers of Pub/Sub and of Google Cloud Storage check no credentials."""

GROUPS: Final[Mapping[str, str]] = {
    "kafka": "kafka-security",
    "kafka-shards": "kafka-security",
    "rabbitmq-streams": "rabbitmq",
    "s3": "objects",
    "s3-notified": "objects",
    "az": "azure",
}
"""The workers on which the shared servers run, where they are not named like the broker."""
