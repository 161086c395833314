"""Messages of Kafka as raw events, and the decoding of their values."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from headrace.triggers.raw_event import Message

if TYPE_CHECKING:
    from headrace.sources.kafka.partitions import Partition

Decoding: TypeAlias = Literal["json", "text", "base64"]
"""How the value of a message becomes JSON. `json` takes it unchanged."""

TOMBSTONE: Final = b"null"
"""The JSON of a message without a value, by which Kafka marks a deleted key."""

_encode: Final = msgspec.json.Encoder().encode


class KafkaMessage(Message):
    """A message of a topic. It is its own broker payload. Other processes get it without its `partition`."""

    __slots__ = ("partition",)

    partition: Partition | None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process: all but the partition, which belongs to the reader."""
        return super().__getstate__() | {"partition": None}


def _json(value: bytes | None) -> bytes:
    return TOMBSTONE if value is None else value


def _text(value: bytes | None) -> bytes:
    if value is None:
        return TOMBSTONE
    try:
        return _encode({"text": value.decode()})
    except UnicodeDecodeError:
        return value  # not JSON either, so that it becomes a dead letter


def _base64(value: bytes | None) -> bytes:
    return TOMBSTONE if value is None else b'{"base64":"' + b64encode(value) + b'"}'


DECODERS: Final[Mapping[Decoding, Callable[[bytes | None], bytes]]] = {"json": _json, "text": _text, "base64": _base64}
