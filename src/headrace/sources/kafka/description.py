"""What the reader of a stream gets from its producer: what to read, and whom to call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.core.connection import Connection
from headrace.core.values.shards import WHOLE, Shard
from headrace.errors import HeadraceError
from headrace.sources.blocking_seek import BlockingSeek
from headrace.sources.kafka.message import KafkaMessage
from headrace.sources.kafka.settings import KafkaDecoding
from headrace.sources.kafka.start import Start
from headrace.triggers.stream_log import LogMark


class Description(NamedTuple):
    """What a reader reads, and how it connects."""

    topics: Sequence[str]
    start: Start
    decode: KafkaDecoding
    registry: Connection | None
    consumer: Mapping[str, Any]
    connect: Mapping[str, Any]
    shard: Shard = WHOLE
    seek: BlockingSeek | None = None
    mark: LogMark | None = None


class Listener(NamedTuple):
    """What a reader calls from its thread. None of it may block."""

    deliver: Callable[[list[KafkaMessage]], None]
    begin: Callable[[list[LogMark]], None]
    end: Callable[[HeadraceError], None]
