"""A queue of Amazon SQS as an upstream."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from headrace.errors import UpstreamError
from headrace.sources.arguments import check_integer, check_text
from headrace.sources.declared_decoder import DecodingUpstream, ValueFunction
from headrace.sources.sqs.envelopes import Step, check_steps
from headrace.sources.sqs.producer import PollSettings, QueueDescription, SqsProducer

MAX_NAME_CHARS: Final = 80
MIN_VISIBILITY_SECONDS: Final = 2
MAX_VISIBILITY_SECONDS: Final = 43_200
MAX_WAIT_SECONDS: Final = 20
MAX_LANES: Final = 10_000
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.fifo)?")
_ACCOUNT: Final = re.compile(r"[0-9]{12}")


class SQS(DecodingUpstream):
    """A queue of Amazon SQS. A message becomes a raw event with its id, attributes and the number of deliveries.

    A FIFO queue has one lane for each message group, a standard queue has one lane without order. Messages have no position.

    Args:
        queue: The name of the queue. The name of a FIFO queue ends with `.fifo`.
        connection: The id of a connection of kind `sqs` or `aws`, with region, credentials and, if needed, the address.
        account: The account that owns the queue, if it is not that of the credentials.
        decode: How a body becomes JSON: a format (`"json"`, `"text"`, `"base64"`, `"cloudevents"`, `"debezium"`), or the envelopes to
            remove (`"sns"`, `"eventbridge"`, `"s3"`). Several steps are named from the outer to the inner one: `("sns", "s3")`. The last
            may be a function.
        visibility: The visibility timeout of a received message in seconds. It is extended as long as the message is not answered.
        wait: The seconds of a long poll. Closing the upstream takes up to this time.
        lanes: The number of lanes into which message groups are put, or None for one lane per group. Only for a FIFO queue.
        dead_letter_queue: The queue that gets a copy of each dead letter, or None. It must exist in the account and region of the queue
            that is read, and must be another one. Messages that SQS moves by a redrive policy are not copies.
    """

    def __init__(
        self,
        queue: str,
        *,
        connection: str = "sqs",
        account: str | None = None,
        decode: Step | ValueFunction | Sequence[Step | ValueFunction] = "json",
        visibility: int = 30,
        wait: int = 5,
        lanes: int | None = None,
        dead_letter_queue: str | None = None,
    ) -> None:
        self._queue = _queue_name(queue)
        self._connection = check_text("connection", connection)
        self._account = _account_digits(account)
        self._decode = check_steps(decode)
        self.decodings = self._decode
        self._visibility = check_integer("visibility", visibility, MIN_VISIBILITY_SECONDS, MAX_VISIBILITY_SECONDS, "seconds")
        self._wait = check_integer("wait", wait, 1, MAX_WAIT_SECONDS, "seconds")
        if lanes is not None and not self._queue.endswith(".fifo"):
            raise UpstreamError("Invalid lanes: a standard queue has one lane.", hint="Remove the argument.")
        self._lanes = None if lanes is None else check_integer("lanes", lanes, 1, MAX_LANES, "lanes")
        self._dead_letter_queue = None if dead_letter_queue is None else _other_queue(dead_letter_queue, self._queue)

    def stream_key(self) -> str:
        """Return `sqs:` with the connection, the account if one is given, and the queue."""
        return "/".join(part for part in (f"sqs:{self._connection}", self._account, self._queue) if part)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments as plain JSON."""
        copied = {} if self._dead_letter_queue is None else {"dead_letter_queue": self._dead_letter_queue}
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "queue": self._queue,
            "connection": self._connection,
            "account": self._account,
            "decode": list(self._decode),
            "visibility": self._visibility,
            "wait": self._wait,
            "lanes": self._lanes,
            **copied,
        }

    def description(self) -> QueueDescription:
        """Return the arguments as a producer needs them."""
        polls = PollSettings(self._queue, self._decode, self._visibility, self._wait, self._lanes)
        return QueueDescription(self._connection, self._account, polls, self._dead_letter_queue)

    def producer(self) -> SqsProducer:
        """Return a new producer. It connects in `open_stream`."""
        producer = SqsProducer(self.description())
        producer.upstream = self
        return producer

    @property
    def dead_letter_target(self) -> str | None:
        """The queue that gets copies of dead letters."""
        return None if self._dead_letter_queue is None else f"queue {self._dead_letter_queue}"

    @property
    def event_type(self) -> str:
        """The default type of an event from a message."""
        return "headrace.sqs.message"


def _queue_name(queue: object, argument: str = "queue") -> str:
    if not isinstance(queue, str) or not _NAME.fullmatch(queue) or len(queue) > MAX_NAME_CHARS:
        raise UpstreamError(
            f"Invalid {argument} {queue!r}.",
            hint=f"Give its name, not its URL: up to {MAX_NAME_CHARS} letters, digits, '-', '_', and '.fifo' at the end.",
        )
    return queue


def _other_queue(queue: object, read: str) -> str:
    """Return the dead-letter queue. Refuse the one that is read: each dead letter would be read again as a message."""
    name = _queue_name(queue, "dead_letter_queue")
    if name == read:
        raise UpstreamError(f"The dead-letter queue {name!r} is the queue that is read.", hint="Name another queue.")
    return name


def _account_digits(account: object) -> str | None:
    if account is None:
        return None
    if not isinstance(account, str) or not _ACCOUNT.fullmatch(account):
        raise UpstreamError(f"Invalid account {account!r}.", hint="Give the 12 digits of the account as a text.")
    return account
