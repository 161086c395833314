"""Probes of connections: connect once as an upstream would, and describe the system. Each kind of connection has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, TypeAlias

from headrace.core.connection import Connection
from headrace.errors import UpstreamError

Probe: TypeAlias = Callable[[Connection], str]
"""Connect, and return one line that describes the system. Blocks for a bounded time. Raises `HeadraceError` with the reason."""

MODULES: Final[Mapping[str, str]] = {
    "amqp": "headrace.sources.rabbitmq.probe",
    "amqps": "headrace.sources.rabbitmq.probe",
    "azure": "headrace.sources.objects.azure.probe",
    "gcs": "headrace.sources.objects.gcs.probe",
    "kafka": "headrace.sources.kafka.client",
    "kinesis": "headrace.sources.kinesis.probe",
    "mqtt": "headrace.sources.mqtt.probe",
    "mqtts": "headrace.sources.mqtt.probe",
    "nats": "headrace.sources.nats.client",
    "pulsar": "headrace.sources.pulsar.client",
    "pulsar+ssl": "headrace.sources.pulsar.client",
    "pubsub": "headrace.sources.pubsub.client",
    "servicebus": "headrace.sources.service_bus.client",
    "s3": "headrace.sources.objects.s3.probe",
    "sqs": "headrace.sources.sqs.probe",
    "aws": "headrace.sources.sqs.probe",
    "postgres": "headrace.sources.postgres.probe",
    "postgresql": "headrace.sources.postgres.probe",
    "redis": "headrace.sources.redis.probe",
    "rediss": "headrace.sources.redis.probe",
    "valkey": "headrace.sources.redis.probe",
    "valkeys": "headrace.sources.redis.probe",
    "http": "headrace.sources.http.probe",
    "https": "headrace.sources.http.probe",
}
"""The module with the function `probe` for each kind. It is imported when it is needed, because it may need a client library."""


def probe_connection(connection: Connection) -> str:
    """Connect to the system and return a line that describes it.

    Raises:
        UpstreamError: The kind has no probe, the client library is missing, or the system refuses the connection.
        HeadraceError: The system does not answer.
    """
    module = MODULES.get(connection.kind)
    if module is None:
        raise UpstreamError(
            f"Connection '{connection.id}' cannot be tested: there is no test for the kind {connection.kind!r}.",
            hint=f"These kinds have one: {', '.join(sorted(MODULES))}.",
        )
    probe: Probe = import_module(module).probe
    return probe(connection)
