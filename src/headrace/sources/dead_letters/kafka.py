"""Copy dead letters to a topic of Kafka. Each copy has its own delivery report, because a flush without one loses what fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, Final, NamedTuple

from headrace.errors import CopyRejected, HeadraceError, StreamError, UpstreamError
from headrace.ports.dead_letter_sender import DeadLetterCopy, DeadLetterSender
from headrace.sources.dead_letters.message import copied_headers, copied_value
from headrace.sources.kafka.broker_errors import ConnectionErrors, cause, client_logger, described
from headrace.sources.kafka.client import load_library
from headrace.sources.kafka.settings import client_settings
from headrace.sources.kafka.upstream import Kafka
from headrace.triggers.secrets import aget_connection

DELIVERY_SECONDS: Final = 20.0
"""Time limit of the client for one copy, retries included."""
REPORT_SECONDS: Final = 30.0
"""Time limit for the reports of all copies of one call, after which the connection is given up."""
METADATA_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 5.0
TICK_SECONDS: Final = 0.1
QUEUE_KILOBYTES: Final = 64 * 1024
MAX_CLIENT_BYTES: Final = 1_000_000_000
"""The limit of the client for one message. The limit of the topic is the broker's."""

OWN: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "max.in.flight.requests.per.connection": 1,
    "retries": 2_147_483_647,
    "delivery.timeout.ms": round(DELIVERY_SECONDS * 1000),
    "message.max.bytes": MAX_CLIENT_BYTES,
    "queue.buffering.max.kbytes": QUEUE_KILOBYTES,
    "linger.ms": 5,
}
"""Settings by which a report means that the copy is stored, once, on all replicas in sync. A connection cannot change them.

There is one request in flight. A broker that begins to lead a partition may refuse the first request and take the second, and answer the
repetition of the first as a duplicate. Its messages would be lost, and reported as delivered.
"""
IGNORED: Final = ("transactional.id", "message.timeout.ms", "request.required.acks", "max.in.flight", "message.send.max.retries")
"""Settings of a connection that would change them under another name."""

REJECTED: Final = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG", "INVALID_MSG_SIZE"})
"""Errors of a message that another attempt does not change. In a request with several messages, each may be the cause."""
WRITE_HINT: Final = "Allow this user WRITE and DESCRIBE on the topic."


class _Report(NamedTuple):
    """The delivery report of one copy: its `KafkaError`, or None."""

    error: Any


class KafkaDeadLetterSender(DeadLetterSender):
    """Sends copies to a topic with an idempotent producer. Its blocking calls are in a thread."""

    def __init__(self, connection: str, topic: str, decode: str) -> None:
        self._connection = connection
        self._topic = topic
        self._decode = decode
        self._producer: Any = None
        self._library: Any = None
        self._errors = ConnectionErrors()
        self._stopped = Event()
        self._call: asyncio.Future[Any] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace-copies")  # others share the threads of the loop

    async def send(self, copies: Sequence[DeadLetterCopy]) -> Sequence[HeadraceError | None]:
        """Send the copies and wait for the report of each.

        Raises:
            HeadraceError: The topic does not exist, or the cluster refuses the connection or does not answer.
        """
        if self._producer is None:
            connection = await aget_connection(self._connection)
            settings = {name: value for name, value in client_settings(connection).items() if name not in IGNORED}
            await self._in_thread(lambda: self._open(settings))
        results: Sequence[HeadraceError | None] = await self._in_thread(lambda: self._send(copies))
        return results

    async def aclose(self) -> None:
        """Drop what has no report yet, and close the connection."""
        self._stopped.set()
        if self._call is not None:
            await asyncio.wait([self._call], timeout=CLOSE_SECONDS)
        closed = asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        await asyncio.wait([closed], timeout=CLOSE_SECONDS)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        """Run blocking calls in a thread. A cancelled caller leaves them to `aclose`."""
        self._call = asyncio.get_running_loop().run_in_executor(self._thread, call)
        self._call.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._call)

    def _close(self) -> None:
        """Free the client here: it waits for its own threads."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(CLOSE_SECONDS)
            self._producer = None

    def _open(self, settings: Mapping[str, Any]) -> None:
        library = self._library = load_library()
        try:
            self._producer = library.Producer({**settings, **OWN} | {"logger": client_logger(), "error_cb": self._errors.add})
        except library.KafkaException as error:
            raise described(f"Copies to topic {self._topic!r} cannot be sent", cause(error)) from None
        self._check_topic()

    def _check_topic(self) -> None:
        """Look for the topic in the list of all: a request for one topic may create it."""
        until = time.monotonic() + METADATA_SECONDS
        while True:
            try:
                topics = self._producer.list_topics(timeout=1.0).topics
                break
            except self._library.KafkaException as error:
                self._producer.poll(0)
                if self._stopped.is_set() or self._errors.rejected is not None or time.monotonic() > until:
                    raise self._errors.described(f"Copies to topic {self._topic!r} cannot be sent", cause(error)) from None
        if self._topic not in topics:
            raise UpstreamError(
                f"The dead-letter topic {self._topic!r} does not exist, or this user may not see it.",
                hint=f"Create it. {WRITE_HINT} Headrace creates no topics.",
            )

    def _send(self, copies: Sequence[DeadLetterCopy]) -> list[HeadraceError | None]:
        reports = self._reports(copies)
        for number, report in enumerate(reports):
            # One message that the broker refuses fails its request, and all other messages in it.
            if len(copies) > 1 and report.error is not None and report.error.name() in REJECTED:
                (reports[number],) = self._reports([copies[number]])
        return [self._result(report) for report in reports]

    def _reports(self, copies: Sequence[DeadLetterCopy]) -> list[_Report]:
        """Send copies, and return their reports in order. Raises `StreamError` if one does not come."""
        reports: dict[int, _Report] = {}
        until = time.monotonic() + REPORT_SECONDS
        for number, copy in enumerate(copies):
            self._produce(copy, until, lambda error, _, number=number: reports.setdefault(number, _Report(error)))
        while len(reports) < len(copies):
            self._wait(until)
        return [reports[number] for number in range(len(copies))]

    def _produce(self, copy: DeadLetterCopy, until: float, on_delivery: Callable[..., Any]) -> None:
        value, is_original = copied_value(copy, self._decode)
        key = None if copy.metadata is None else copy.metadata.key
        headers = copied_headers(copy, None if is_original else self._decode)
        while True:
            try:
                self._producer.produce(self._topic, value, None if key is None else key.encode(), headers=headers, on_delivery=on_delivery)
            except BufferError:
                self._wait(until)
            except self._library.KafkaException as error:
                on_delivery(cause(error), None)
                return
            else:
                self._producer.poll(0)
                return

    def _wait(self, until: float) -> None:
        if self._stopped.is_set() or time.monotonic() > until:
            raise StreamError(
                f"Copies to topic {self._topic!r} are not confirmed after {REPORT_SECONDS:g} s.", hint="Is the cluster running?"
            )
        self._producer.poll(TICK_SECONDS)

    def _result(self, report: _Report) -> HeadraceError | None:
        error = report.error
        if error is None:
            return None
        what = f"A copy to topic {self._topic!r} was not sent"
        if error.name() in REJECTED:
            return CopyRejected(f"The topic {self._topic!r} refuses it: {str(error.str()).rstrip('.')}.")
        if error.name() == "TOPIC_AUTHORIZATION_FAILED":
            return UpstreamError(f"{what}: {error.str()}.", hint=WRITE_HINT)
        if error.fatal():  # the next attempt has a new producer
            return StreamError(f"{what}: {error.str()}.")
        return self._errors.described(what, error)


def make_sender(upstream: Kafka) -> KafkaDeadLetterSender:
    """Return the sender to the dead-letter topic of an upstream."""
    topics = upstream.description()
    if topics.dead_letter_topic is None:
        raise UpstreamError(f"{upstream.stream_key()} has no dead-letter topic.")
    return KafkaDeadLetterSender(topics.connection, topics.dead_letter_topic, topics.decode)
