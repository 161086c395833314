"""What a seek would move, and the module of each kind of upstream that has positions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

from headrace.errors import UpstreamError
from headrace.sources.peeks.peek import is_lane, unknown_lane
from headrace.sources.seeks.target import LanePoint, SeekTarget
from headrace.triggers.upstream import Upstream


class LanePreview(NamedTuple):
    """A lane that a seek moves, in its stream. Positions are those of the message that is read next.

    `first` is the position of the first message that the upstream has, and `end` is the one after its last. `now` is where the lane is
    read next without the seek, and `position` with it. `messages` is the number of messages between them, or None if positions are counted.
    """

    stream: str
    lane: str
    first: int
    end: int
    now: int
    position: int
    messages: int | None = None


Previewer: TypeAlias = Callable[[Any, SeekTarget], Awaitable[Sequence[LanePreview]]]
"""Return the lanes that a target names. Reads only, as a peek does. Raises `HeadraceError`."""

MODULES: Final[Mapping[str, str]] = {
    "headrace.sources.kafka.upstream.Kafka": "headrace.sources.seeks.kafka",
    "headrace.sources.nats.upstream.Nats": "headrace.sources.seeks.nats",
    "headrace.sources.redis.upstream.RedisStreams": "headrace.sources.seeks.redis",
}
"""The module with the function `preview` for each class. It is imported when it is needed, because it needs a client library."""

REFUSALS: Final[Mapping[str, tuple[str, str]]] = {
    "headrace.sources.sqs.upstream.SQS": (
        "a queue has no position, and deletes the messages that are answered",
        "To skip all messages, purge the queue. To get messages again, send them again.",
    ),
    "headrace.sources.service_bus.upstream.ServiceBus": (
        "a queue or subscription has no position, and deletes the messages that are answered",
        "To get messages again, send them again. To skip all messages, receive and delete them with Service Bus Explorer.",
    ),
    "headrace.sources.kinesis.upstream.Kinesis": (
        "its positions are counted, and the service has no place for a count",
        "Give the upstream another group, with the start that you need.",
    ),
    "headrace.sources.pulsar.upstream.Pulsar": (
        "each opening counts its positions from 1",
        "Stop the triggerer, then move the subscription: pulsar-admin topics reset-cursor TOPIC -s SUBSCRIPTION -t 10m",
    ),
    "headrace.sources.pubsub.upstream.PubSub": (
        "a subscription has no position of single messages",
        "To skip or repeat messages, seek the subscription to a time: gcloud pubsub subscriptions seek NAME --time=TIME.",
    ),
    "headrace.sources.rabbitmq.upstream.RabbitMQ": (
        "a queue has no position, and deletes the messages that are answered",
        "To skip all messages: rabbitmqctl purge_queue NAME. To get messages again, send them again.",
    ),
    "headrace.sources.rabbitmq.streams.upstream.RabbitMQStreams": (
        "a seek of streams of RabbitMQ is not implemented",
        "Give the upstream another group, with the start that you need.",
    ),
    "headrace.sources.mqtt.upstream.Mqtt": (
        "a session has no position, and the server deletes the messages that are answered",
        "To skip all messages, use a new client_id. To get messages again, publish them again.",
    ),
    "headrace.sources.postgres.upstream.Postgres": (
        "a replication slot cannot go back",
        "To read rows of the outbox again, insert them again.",
    ),
    "headrace.sources.objects.upstream.ObjectStore": (
        "its progress is a set of objects and not a position",
        "To read an object again, copy it to another key.",
    ),
    "headrace.sources.directory.upstream.Directory": (
        "a finished file is not opened again",
        "To read a file again, move a copy of it into the folder, under another name.",
    ),
    "headrace.sources.queue.upstream.Queue": (
        "a queue deletes the messages that are answered",
        "To get messages again, send them again with: headrace send",
    ),
    "headrace.sources.http.upstream.Http": (
        "its queue deletes the requests that are answered",
        "To get requests again, have the sender repeat them.",
    ),
    "headrace.sources.memory.upstream.Memory": (
        "its messages are in the memory of the process that reads them",
        "Use a Queue to have messages in a file.",
    ),
}
"""Why a kind cannot seek, and what to do instead."""
NOT_BUILT_IN: Final = ("it is not built in", "Move its reader with the tools of its system.")
DECODED_BY_FUNCTION: Final = (
    "a function decodes its values, in a process that knows no seek",
    "Move the offsets with the tools of its system, while no triggerer reads it.",
)


async def preview_seek(upstream: Upstream, target: SeekTarget) -> Sequence[LanePreview]:
    """Return the lanes of an upstream that a target names, with their positions before and after.

    Raises:
        UpstreamError: The kind cannot seek, the target does not fit the lanes, or the system refuses the connection.
        HeadraceError: The system does not answer.
    """
    kind = f"{type(upstream).__module__}.{type(upstream).__qualname__}"
    module = MODULES.get(kind)
    if module is None or upstream.has_user_code:
        why, hint = DECODED_BY_FUNCTION if upstream.has_user_code else REFUSALS.get(kind, NOT_BUILT_IN)
        raise UpstreamError(f"The upstream {upstream.stream_key()} cannot seek: {why}.", hint=hint)
    preview: Previewer = import_module(module).preview
    return await preview(upstream, target)


def lane_points(lanes: Sequence[str], target: SeekTarget) -> dict[str, LanePoint]:
    """Return the point of each lane that a target names.

    Raises:
        UpstreamError: A lane is unknown, or one position is given for several lanes.
    """
    if target.everywhere is not None:
        if isinstance(target.everywhere, int) and len(lanes) != 1:
            example = ",".join(f"{lane.rpartition('@')[0] or lane}={target.everywhere}" for lane in lanes[:2])
            raise UpstreamError(
                f"One position does not fit {len(lanes):,} lanes.", hint=f"Name the lanes: --to {example or 'LANE=POSITION'}"
            )
        return dict.fromkeys(lanes, target.everywhere)
    points: dict[str, LanePoint] = {}
    for name, point in target.lanes.items():
        matches = [lane for lane in lanes if is_lane(lane, name)]
        if not matches:
            raise unknown_lane(name, lanes)
        points |= dict.fromkeys(matches, point)
    return points


def check_position(preview: LanePreview) -> None:
    """Raise `UpstreamError` unless the lane has a message at its position, or ends there."""
    if not preview.first <= preview.position <= preview.end:
        raise UpstreamError(
            f"Lane {preview.lane} has no position {preview.position}: it has messages from {preview.first} to before {preview.end}.",
            hint="Use a position in this range, earliest or latest.",
        )
