"""One upstream of each broker, which its reader reaches through a proxy and the sender directly."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from headrace.triggers.upstream import Upstream
from support.processes import elasticmq, kafka, mosquitto, moto, nats, pubsub, pulsar, rabbitmq, redis, service_bus, versitygw
from support.processes.broker_server import connection_variable
from support.processes.kafka import KafkaServer
from support.processes.ports import free_port
from support.processes.proxy import Direction, Proxy
from support.processes.shared_servers import shared_server
from support.sources import postgres
from support.sources.kafka import KafkaTopic
from support.sources.kinesis import KinesisStream
from support.sources.mqtt import MqttSession
from support.sources.nats import NatsStream
from support.sources.objects import TestBucket
from support.sources.postgres import OutboxTable
from support.sources.pubsub import PubSubSubscription
from support.sources.pulsar import PulsarTopic
from support.sources.rabbitmq import RabbitQueue, RabbitStream
from support.sources.reading import until
from support.sources.redis import RedisStream
from support.sources.service_bus import ServiceBusQueue
from support.sources.sqs import SqsQueue

Advance = Callable[[], Coroutine[Any, Any, None]]


class Proxied(NamedTuple):
    """An upstream behind a proxy. `ordered`: it has one lane, which has the messages in the order in which they were sent."""

    server: Any
    upstream: Upstream
    send: Callable[[Sequence[bytes]], object]
    proxy: Proxy
    ordered: bool
    close: Callable[[], None]


class ProxiedKafka(NamedTuple):
    """A server of Kafka that tells its clients the address of the proxy."""

    server: KafkaServer
    proxy: Proxy

    def close(self) -> None:
        """End both."""
        self.server.close()
        self.proxy.close()


def new_proxied_kafka() -> ProxiedKafka:
    """Return a new server behind a proxy. Skip the test where it is not installed."""
    kafka.require("kafka")
    proxy = Proxy(free_port())
    folder = Path(tempfile.mkdtemp(prefix="headrace-kafka-"))
    properties = folder / "proxied.properties"
    properties.write_text("listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT\n")
    server = KafkaServer(
        "kafka",
        folder=folder,
        KAFKA_LISTENERS=f",PROXIED://127.0.0.1:{proxy.target}",
        KAFKA_ADVERTISED=f",PROXIED://{proxy.address}",
        KAFKA_PROPERTIES=str(properties),
    )
    return ProxiedKafka(server, proxy)


_proxied_kafka = shared_server(new_proxied_kafka)

KAFKA_SHORT: Final = {
    "socket_timeout_ms": "1500",
    "fetch_wait_max_ms": "100",
    "session_timeout_ms": "3000",
    "heartbeat_interval_ms": "300",
}


def _kafka(*, short: bool, server: KafkaServer | None = None, shards: int = 1) -> Proxied:
    """The server is its own: only that one tells its clients the address of the proxy. Of several shards, the upstream reads the first."""
    assert server is None
    server, proxy = _proxied_kafka()
    topic = KafkaTopic(server, partitions=shards)
    topic.set_connection(proxy.address, **(KAFKA_SHORT if short else {}))
    return Proxied(server, topic.upstream(shards=shards).split()[0], topic.send, proxy, True, topic.close)


def _pulsar(*, short: bool, server: Any = None) -> Proxied:
    """The server is its own: only that one tells its clients the address of the proxy. The admin API is reached directly."""
    assert server is None
    proxied = pulsar.shared_proxied()
    topic = PulsarTopic(proxied.server)
    topic.set_connection(proxied.url)
    return Proxied(proxied.server, topic.upstream(), topic.send, proxied.proxy, True, topic.close)


def _through(connection: str, address: str) -> Proxy:
    """Return a proxy to an address, and put it in place of the address of a connection."""
    proxy = Proxy(int(address.rpartition(":")[2]))
    variable = connection_variable(connection)
    assert address in os.environ[variable]
    os.environ[variable] = os.environ[variable].replace(address, proxy.address)
    return proxy


def _proxied(source: Any, address: str, upstream: Upstream, send: Callable[[Sequence[bytes]], object], *, ordered: bool) -> Proxied:
    proxy = _through(source.connection, address)

    def close() -> None:
        proxy.close()
        source.close()

    return Proxied(source.server, upstream, send, proxy, ordered, close)


def _sqs(*, short: bool, server: Any = None) -> Proxied:
    queue = SqsQueue(server or elasticmq.shared())
    return _proxied(queue, queue.server.address, queue.upstream(), queue.send, ordered=False)


def _kinesis(*, short: bool) -> Proxied:
    stream = KinesisStream(moto.shared())
    return _proxied(stream, stream.server.address, stream.upstream(), stream.send, ordered=True)


def _nats(*, short: bool, server: Any = None) -> Proxied:
    stream = NatsStream(server or nats.shared("go"))
    return _proxied(stream, stream.server.address, stream.upstream(), stream.send, ordered=True)


def _mqtt(*, short: bool, server: Any = None) -> Proxied:
    session = MqttSession(server or mosquitto.shared())
    if short:
        session.set_connection(f"mqtt://{session.server.address}?keepalive=1")
    return _proxied(session, session.server.address, session.upstream(), session.send, ordered=True)


def _redis(*, short: bool, server: Any = None) -> Proxied:
    stream = RedisStream(server or redis.shared())
    return _proxied(stream, stream.server.address, stream.upstream(lease=4), stream.send, ordered=True)


def _rabbitmq(*, short: bool, server: Any = None) -> Proxied:
    queue = RabbitQueue(server or rabbitmq.shared())
    if short:
        queue.set_connection(f"amqp://guest:guest@{queue.server.address}/?heartbeat=1")
    return _proxied(queue, queue.server.address, queue.upstream(), queue.send, ordered=True)


def _rabbitmq_streams(*, short: bool, server: Any = None) -> Proxied:
    stream = RabbitStream(server or rabbitmq.shared())
    if short:
        stream.set_connection(f"amqp://guest:guest@{stream.server.address}/?heartbeat=1")
    return _proxied(stream, stream.server.address, stream.streams(), stream.send, ordered=True)


def _postgres(*, short: bool, server: Any = None) -> Proxied:
    table = OutboxTable(server or postgres.shared())
    return _proxied(table, f"127.0.0.1:{table.server.port}", table.upstream(), table.send, ordered=True)


def _pubsub(*, short: bool) -> Proxied:
    subscription = PubSubSubscription()
    return _proxied(subscription, pubsub.shared().address, subscription.upstream(), subscription.send, ordered=False)


def _service_bus(*, short: bool) -> Proxied:
    queue = ServiceBusQueue(service_bus.shared())
    return _proxied(queue, queue.server.address, queue.upstream(), queue.send, ordered=False)


def _service_bus_sessions(*, short: bool) -> Proxied:
    queue = ServiceBusQueue(service_bus.shared(), sessions=2)
    return _proxied(queue, queue.server.address, queue.upstream(), queue.send, ordered=True)


def _objects(*, short: bool, server: Any = None) -> Proxied:
    bucket = TestBucket(server or versitygw.shared())

    def send(messages: Sequence[bytes]) -> None:
        bucket.put(f"{messages[0].decode()}.jsonl", messages)

    return _proxied(bucket, bucket.server.address, bucket.upstream(read="lines"), send, ordered=False)


async def begin_in_silence(proxy: Proxy, lost: Direction | None, advance: Advance) -> asyncio.Future[None]:
    """Begin an advance whose request is lost, or its answer, or nothing. Return once the request was sent, if it is not lost."""
    passed = proxy.passed("to_server")
    if lost is not None:
        proxy.silence(lost)
    running = asyncio.ensure_future(advance())
    if lost == "to_client":
        await until(lambda: proxy.passed("to_server") > passed or running.done())
    else:
        await asyncio.sleep(0)
    return running


PROXIED: Final[Mapping[str, Callable[..., Proxied]]] = {
    "kafka": _kafka,
    "kafka_shards": partial(_kafka, shards=2),
    "sqs": _sqs,
    "kinesis": _kinesis,
    "nats": _nats,
    "mqtt": _mqtt,
    "pulsar": _pulsar,
    "redis": _redis,
    "rabbitmq": _rabbitmq,
    "rabbitmq_streams": _rabbitmq_streams,
    "postgres": _postgres,
    "pubsub": _pubsub,
    "service_bus": _service_bus,
    "service_bus_sessions": _service_bus_sessions,
    "objects": _objects,
}
"""How the upstream of a broker is made. With `short`, its connection has short timeouts, where a connection can."""

SHORT: Final[Mapping[str, Mapping[str, float]]] = {
    **{name: {"kafka.client.OPEN_SECONDS": 2.0} for name in ("kafka", "kafka_shards")},
    "pubsub": {
        "pubsub.client.OPEN_SECONDS": 2.0,
        "pubsub.client.ANSWER_SECONDS": 1.0,
        "pubsub.client.KEEPALIVE_SECONDS": 1.5,
        "pubsub.client.KEEPALIVE_ANSWER_SECONDS": 0.5,
    },
    "sqs": {"sqs.client.ANSWER_SECONDS": 0.5, "sqs.client.OPEN_SECONDS": 2.0, "aws.client.CONNECT_SECONDS": 1.0},
    "kinesis": {
        "kinesis.client.ANSWER_SECONDS": 0.5,
        "kinesis.client.OPEN_SECONDS": 2.0,
        "kinesis.table.ANSWER_SECONDS": 0.5,
        "aws.client.CONNECT_SECONDS": 1.0,
    },
    "mqtt": {"mqtt.client.ANSWER_SECONDS": 2.0, "mqtt.library.CONNECT_SECONDS": 1.0},
    "nats": {"nats.reader.HEARTBEAT_SECONDS": 0.3, "nats.client.ANSWER_SECONDS": 1.0, "nats.client.CONNECT_SECONDS": 1},
    "pulsar": {
        "pulsar.acknowledgements.CONFIRM_SECONDS": 1.0,
        "pulsar.client.CLOSE_SECONDS": 1.0,
        "pulsar.client.OPERATION_SECONDS": 2,
        "pulsar.reader.WATCH_SECONDS": 0.3,
    },
    "redis": {
        "redis.client.ANSWER_SECONDS": 0.5,
        "redis.client.BLOCK_SECONDS": 0.3,
        "redis.client.CONNECT_SECONDS": 1.0,
        "redis.reader.OPEN_SECONDS": 2.0,
    },
    "postgres": {
        "postgres.producer.STATUS_SECONDS": 0.2,
        "postgres.producer.STALL_SECONDS": 1.0,
        "postgres.server.REQUEST_SECONDS": 1.0,
        "postgres.settings.CONNECT_SECONDS": 2,
    },
    **{
        name: {
            "service_bus.handler.ANSWER_SECONDS": 2.0,
            "service_bus.handler.CLOSE_SECONDS": 0.5,
            "service_bus.receiver.KEEPALIVE_SECONDS": 1.0,
            "service_bus.producer.ACCEPT_SECONDS": 1.0,
            "service_bus.producer.MAX_MESSAGES": 10,  # which a connection that is silent gets again and again
        }
        for name in ("service_bus", "service_bus_sessions")
    },
    "objects": {"objects.s3.client.ANSWER_SECONDS": 0.5, "aws.client.CONNECT_SECONDS": 1.0},
}
"""Constants of the modules of `headrace.sources` that a connection does not change, with short times."""
