"""What a peek requests and returns, and the module of each kind of upstream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib import import_module
from itertools import islice, zip_longest
from typing import Any, Final, NamedTuple, TypeAlias

from headrace.errors import UpstreamError
from headrace.triggers.raw_event import RawEvent
from headrace.triggers.upstream import Upstream

PEEK_SECONDS: Final = 10.0
"""Time limit of the requests of one peek to a broker."""
MAX_PEEK_BYTES: Final = 16 * 1024 * 1024
"""Bytes of messages after which a peek reads no more."""
MAX_NAMED_LANES: Final = 20


class PeekRequest(NamedTuple):
    """Up to `limit` messages, of all lanes or of one. A lane is named with or without the part after its last `@`."""

    limit: int
    lane: str | None = None


class Peek(NamedTuple):
    """The next messages, in order within each lane, and notes about what is missing or unreadable."""

    messages: Sequence[RawEvent]
    notes: Sequence[str] = ()


Peeker: TypeAlias = Callable[[Any, PeekRequest], Awaitable[Peek]]
"""Return the messages that a reader would get first if it opened the upstream now.

Reads only: it joins no group, takes no lease or lock, and acknowledges nothing. Raises `HeadraceError`.
"""

MODULES: Final[Mapping[str, str]] = {
    "headrace.sources.directory.upstream.Directory": "headrace.sources.peeks.directory",
    "headrace.sources.http.upstream.Http": "headrace.sources.peeks.queue",
    "headrace.sources.kafka.upstream.Kafka": "headrace.sources.peeks.kafka",
    "headrace.sources.kinesis.upstream.Kinesis": "headrace.sources.peeks.kinesis",
    "headrace.sources.nats.upstream.Nats": "headrace.sources.peeks.nats",
    "headrace.sources.pulsar.upstream.Pulsar": "headrace.sources.peeks.pulsar",
    "headrace.sources.queue.upstream.Queue": "headrace.sources.peeks.queue",
    "headrace.sources.rabbitmq.streams.upstream.RabbitMQStreams": "headrace.sources.peeks.rabbitmq",
    "headrace.sources.redis.upstream.RedisStreams": "headrace.sources.peeks.redis",
    "headrace.sources.service_bus.upstream.ServiceBus": "headrace.sources.peeks.service_bus",
}
"""The module with the function `peek` for each class. It is imported when it is needed, because it may need a client library."""

REFUSALS: Final[Mapping[str, tuple[str, str]]] = {
    "headrace.sources.sqs.upstream.SQS": (
        "a look at messages of SQS hides them from the reader and counts as a delivery, which may move them to the dead-letter queue",
        "See the number of messages in the metrics of the queue, or send a copy to a second queue through SNS.",
    ),
    "headrace.sources.pubsub.upstream.PubSub": (
        "a look at messages of Pub/Sub hides them from the reader and counts as a delivery",
        "See the number of messages in the metrics of the subscription, or create a second subscription of the topic.",
    ),
    "headrace.sources.rabbitmq.upstream.RabbitMQ": (
        "a look at messages of RabbitMQ delivers them and puts them back, which counts as a delivery and may change their order",
        "See the number of messages with: rabbitmqctl list_queues. To see messages, bind a second queue to the exchange.",
    ),
    "headrace.sources.mqtt.upstream.Mqtt": (
        "a look at messages of MQTT would take the session from its reader",
        "Subscribe with another client_id, for example with mosquitto_sub, to see what is published from then on.",
    ),
    "headrace.sources.postgres.upstream.Postgres": (
        "changes can only be decoded again from a replication slot that no reader uses",
        "Query the outbox, or the tables. When the triggerer is stopped: SELECT pg_logical_slot_peek_binary_changes(…).",
    ),
    "headrace.sources.objects.upstream.ObjectStore": (
        "a peek at objects of a bucket is not implemented",
        "List the bucket with its own tools.",
    ),
    "headrace.sources.memory.upstream.Memory": (
        "its messages are in the memory of the process that reads them",
        "Use a Queue to have messages in a file.",
    ),
}
"""Why a kind cannot be peeked, and what to do instead."""


async def peek_upstream(upstream: Upstream, request: PeekRequest) -> Peek:
    """Return the next messages of an upstream.

    Raises:
        UpstreamError: The kind cannot be peeked, the lane is unknown, or the system refuses the connection.
        HeadraceError: The system does not answer.
    """
    kind = f"{type(upstream).__module__}.{type(upstream).__qualname__}"
    module = MODULES.get(kind)
    if module is None:
        why, hint = REFUSALS.get(kind, ("it is not built in", "Read its system with its own tools."))
        raise UpstreamError(f"The upstream {upstream.stream_key()} cannot be peeked: {why}.", hint=hint)
    peek: Peeker = import_module(module).peek
    result = await peek(upstream, request)
    if len(result.messages) < request.limit and sum(len(message.data) for message in result.messages) >= MAX_PEEK_BYTES:
        return result._replace(notes=[*result.notes, f"A peek ends after {MAX_PEEK_BYTES >> 20} MiB: there may be more messages."])
    return result


def matching_lanes(lanes: Iterable[str], request: PeekRequest) -> list[str]:
    """Return the lanes of a request. Raises `UpstreamError` if there is no lane of that name."""
    names = list(lanes)
    if request.lane is None:
        return names
    chosen = [name for name in names if is_lane(name, request.lane)]
    if not chosen:
        raise unknown_lane(request.lane, names)
    return chosen


def is_lane(lane: str, name: str) -> bool:
    """Return whether `name` names the lane, with or without the part after its last `@`."""
    return name in (lane, lane.rpartition("@")[0])


def unknown_lane(name: str, lanes: Sequence[str]) -> UpstreamError:
    """Return the error for a lane that does not exist."""
    names = ", ".join(lanes[:MAX_NAMED_LANES]) + (f" and {len(lanes) - MAX_NAMED_LANES:,} more" if len(lanes) > MAX_NAMED_LANES else "")
    return UpstreamError(f"There is no lane {name!r}.", hint=f"The lanes are: {names}." if lanes else "The upstream has no lanes now.")


def in_turn(lanes: Sequence[Sequence[RawEvent]], count: int) -> list[RawEvent]:
    """Return up to `count` messages, one of each lane in turn, then sorted by lane."""
    rounds = (message for turn in zip_longest(*lanes) for message in turn if message is not None)
    chosen = list(islice(rounds, count))
    order = {id(message): number for number, message in enumerate(message for lane in lanes for message in lane)}
    return sorted(chosen, key=lambda message: order[id(message)])
