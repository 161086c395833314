"""One upstream of each broker, behind a proxy, whose server may be killed. Each server is of the tests that kill it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from support.processes import elasticmq, fake_gcs, mosquitto, nats, rabbitmq, redis, versitygw
from support.processes.elasticmq import ElasticMq
from support.processes.fake_gcs import FakeGcs
from support.processes.mosquitto import MosquittoServer
from support.processes.nats import NatsServer
from support.processes.rabbitmq import RabbitServer
from support.processes.redis import RedisServer
from support.processes.shared_servers import shared_server
from support.processes.versitygw import VersityGateway
from support.sources.postgres import new_server
from support.sources.proxied import PROXIED, Proxied


class Killable(NamedTuple):
    """A kind of server. `upstream` is the name of its proxied upstream. `forgets`: a killed one may forget its last acknowledgements."""

    upstream: str
    require: Callable[[], object]
    start: Callable[[], Any] | None
    forgets: bool


KILLABLE: Final[Mapping[str, Killable]] = {
    "kafka": Killable("kafka", lambda: None, None, forgets=False),
    "kafka_shards": Killable("kafka_shards", lambda: None, None, forgets=False),
    "sqs": Killable("sqs", elasticmq.require, ElasticMq, forgets=True),
    "postgres": Killable("postgres", lambda: None, lambda: new_server(synchronous_commit="on"), forgets=True),
    "redis": Killable("redis", lambda: redis.require("redis"), lambda: RedisServer("redis"), forgets=False),
    "nats": Killable("nats", lambda: nats.require("go"), lambda: NatsServer("go"), forgets=True),
    "mqtt": Killable("mqtt", mosquitto.require, MosquittoServer, forgets=True),
    "pulsar": Killable("pulsar", lambda: None, None, forgets=True),
    "rabbitmq": Killable("rabbitmq", rabbitmq.require, RabbitServer, forgets=True),
    "s3": Killable("objects", versitygw.require, VersityGateway, forgets=False),
    "gs": Killable("objects", fake_gcs.require, lambda: FakeGcs("filesystem"), forgets=False),
}
"""Not here: moto and the fakes of Pub/Sub and Service Bus, which keep nothing, and Azurite, which loses its last seconds."""


@shared_server
def _server(start: Callable[[], Any]) -> Any:
    return start()


def proxied_killable(name: str) -> Proxied:
    """Return an upstream with short timeouts on the server that may be killed. Skip the test where it is not installed."""
    killable = KILLABLE[name]
    killable.require()
    return PROXIED[killable.upstream](short=True, server=None if killable.start is None else _server(killable.start))
