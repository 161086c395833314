"""Queues of RabbitMQ as an upstream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.arguments import check_integer, check_text, is_utf8, one_or_several
from headrace.sources.declared_decoder import Decoding, DecodingUpstream, ValueFunction, check_decoding
from headrace.sources.rabbitmq.producer import Queues, RabbitProducer

MAX_NAME_BYTES: Final = 255
MAX_QUEUES: Final = 1_000
MAX_PREFETCH: Final = 65_535
MAX_CONSUMER_TIMEOUT_SECONDS: Final = 604_800


class RabbitMQ(DecodingUpstream):
    """Queues of RabbitMQ, classic or quorum. A message becomes a raw event with its id, routing key, headers and timestamp.

    A lane is a queue. Messages have no position. The id of a message is its property `message_id`, if the sender has set one.

    Args:
        queues: The name of a queue, or several names.
        connection: The id of a connection of kind `amqp` or `amqps`, with address, credentials and virtual host.
        decode: How a body becomes JSON: `"json"` as it is, `"text"` as `{"text": …}`, `"base64"` as `{"base64": …}`, `"cloudevents"` in
            the JSON format of CloudEvents, `"debezium"` as the change event. Or a function, or its path.
        prefetch: The number of messages of each queue that the reader holds at most.
        dead_letters: Whether a rejected message also goes to the dead-letter exchange of its queue. Without such an exchange, RabbitMQ
            drops it. By default, it becomes a dead letter of Headrace only.
        consumer_timeout: The consumer timeout of the server in seconds. A failed message is requeued after half of it.
        dead_letter_queue: The queue that gets a copy of each dead letter of Headrace, with its reason, or None. It must exist, and must not
            be read here. It needs no dead-letter exchange, and has no effect on `dead_letters`.
    """

    def __init__(
        self,
        queues: str | Sequence[str],
        *,
        connection: str = "rabbitmq",
        decode: Decoding | ValueFunction = "json",
        prefetch: int = 500,
        dead_letters: bool = False,
        consumer_timeout: int = 1_800,
        dead_letter_queue: str | None = None,
    ) -> None:
        self._queues = _names(queues)
        self._decode = check_decoding(decode)
        self.decodings = (self._decode,)
        if not isinstance(dead_letters, bool):
            raise UpstreamError(f"Invalid dead_letters {dead_letters!r}.", hint="Give True or False.")
        self._connection = check_text("connection", connection)
        self._prefetch = check_integer("prefetch", prefetch, 1, MAX_PREFETCH, "messages")
        self._dead_letters = dead_letters
        self._consumer_timeout = check_integer("consumer_timeout", consumer_timeout, 1, MAX_CONSUMER_TIMEOUT_SECONDS, "seconds")
        self._dead_letter_queue = None if dead_letter_queue is None else other_queue(dead_letter_queue, self._queues)

    def stream_key(self) -> str:
        """Return `rabbitmq:` with the connection and the queues."""
        return f"rabbitmq:{self._connection}/{','.join(self._queues)}"

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments as plain JSON."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "queues": list(self._queues),
            "connection": self._connection,
            "decode": self._decode,
            "prefetch": self._prefetch,
            "dead_letters": self._dead_letters,
            "consumer_timeout": self._consumer_timeout,
            **({} if self._dead_letter_queue is None else {"dead_letter_queue": self._dead_letter_queue}),
        }

    def description(self) -> Queues:
        """Return the arguments as a producer needs them."""
        return Queues(
            self._queues,
            self._connection,
            self._decode,
            self._prefetch,
            self._dead_letters,
            self._consumer_timeout,
            self._dead_letter_queue,
        )

    def producer(self) -> RabbitProducer:
        """Return a new producer. It connects in `open_stream`."""
        producer = RabbitProducer(self.description())
        producer.upstream = self
        return producer

    @property
    def dead_letter_target(self) -> str | None:
        """The queue that gets copies of dead letters."""
        return None if self._dead_letter_queue is None else f"queue {self._dead_letter_queue}"

    @property
    def reader_names(self) -> tuple[str, ...]:
        """The queues, each of which has one reader."""
        return tuple(f"queue {queue!r} of connection {self._connection!r}" for queue in self._queues)

    @property
    def event_type(self) -> str:
        """The default type of an event from a message."""
        return "headrace.rabbitmq.message"


def _names(queues: str | Sequence[str]) -> tuple[str, ...]:
    names = one_or_several("queues", queues)
    if not names or len(names) > MAX_QUEUES:
        raise UpstreamError(f"Invalid number of queues: {len(names)}.", hint=f"Name 1 to {MAX_QUEUES:,}.")
    for name in names:
        _check_name("queue", name)
    return tuple(sorted(set(names)))


def other_queue(name: object, read: Sequence[str]) -> str:
    """Return the dead-letter queue. Raises `UpstreamError` for one that is read: each dead letter would be read again as a message."""
    queue = _check_name("dead_letter_queue", name)
    if queue in read:
        raise UpstreamError(f"The dead-letter queue {queue!r} is one of the queues that are read.", hint="Name another queue.")
    return queue


def _check_name(argument: str, name: object) -> str:
    if not isinstance(name, str) or not name or not is_utf8(name) or len(name.encode()) > MAX_NAME_BYTES:
        raise UpstreamError(f"Invalid {argument} {name!r}.", hint=f"Give its name: a text of up to {MAX_NAME_BYTES} bytes in UTF-8.")
    return name
