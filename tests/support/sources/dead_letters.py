"""Dead letters to copy, and the copies that a topic has."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from headrace.core.values.message_text import MessageMetadata
from headrace.ports.dead_letter_sender import DeadLetterCopy
from headrace.wire.custody.copies import UncopiedDeadLetter
from support.processes.broker_server import SECONDS
from support.processes.kafka import KafkaServer

RECEIVED = datetime(2026, 11, 24, 1, 2, 3, tzinfo=UTC)


def copy_of(number: int, data: bytes = b"{", metadata: MessageMetadata | None = None, **fields: Any) -> DeadLetterCopy:
    """Return a copy to send."""
    given: dict[str, Any] = {
        "id": f"letter-{number}",
        "kind": "malformed",
        "reason": "not JSON",
        "stream": "orders",
        "lane": "orders/0",
        "position": number,
        "raw": "",
        "triggers": ["paid"],
        "attempts": 1,
        "received": RECEIVED,
    }
    return DeadLetterCopy(UncopiedDeadLetter(number=number, **(given | fields)), metadata, data)


class Copied(NamedTuple):
    """One message of a dead-letter target."""

    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]

    @property
    def number(self) -> int:
        """The number of the dead letter."""
        return int(self.headers["headrace-number"] or b"")


def copied(value: bytes, headers: Mapping[str, bytes | None]) -> Copied:
    """Return a copy whose key is the header `headrace-key`."""
    return Copied(headers.get("headrace-key"), value, {name: one for name, one in headers.items() if name != "headrace-key"})


def bytes_of(texts: Mapping[str, str]) -> dict[str, bytes | None]:
    """Return the values of headers that are texts. The header `headrace-base64` names those in base64."""
    encoded = json.loads(texts.get("headrace-base64", "[]"))
    others = {name: text for name, text in texts.items() if name != "headrace-base64"}
    return {name: b64decode(text) if name in encoded else text.encode() for name, text in others.items()}


def copies_in(server: KafkaServer, topic: str) -> list[Copied]:
    """Return all messages of the only partition of a topic."""
    from confluent_kafka import TopicPartition

    consumer = server.consumer("copies", **{"auto.offset.reset": "earliest"})
    try:
        partition = TopicPartition(topic, 0, 0)
        consumer.assign([partition])
        found: list[Copied] = []
        until = time.monotonic() + SECONDS
        end = _end(consumer, partition, until)
        while len(found) < end:
            assert time.monotonic() < until, f"{len(found)} of {end} copies were read"
            if (message := consumer.poll(0.1)) is not None:
                assert message.error() is None, message.error()
                found.append(Copied(message.key(), message.value(), dict(message.headers() or ())))
        return found
    finally:
        consumer.close()


def _end(consumer: Any, partition: Any, until: float) -> int:
    """Return the end offset. A broker that has just started may not know its partitions yet."""
    from confluent_kafka import KafkaException

    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=5.0)[1])
        except KafkaException:
            if time.monotonic() > until:
                raise
