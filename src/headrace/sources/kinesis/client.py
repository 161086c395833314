"""The requests about one stream of Kinesis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

from headrace.core.connection import Connection
from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.aws.client import Service, open_client
from headrace.sources.aws.service_errors import code_of
from headrace.sources.kinesis.service_errors import EXPIRED_ITERATOR, INVALID_ARGUMENT, MISSING, REJECTED, described

SERVICE: Final = Service(
    name="kinesis",
    kinds=("kinesis", "aws"),
    hint="Set it like this: aws://ACCESS_KEY:SECRET@?region=eu-west-1, or aws://?region=eu-west-1 for the credentials of the machine.",
    extra="kinesis",
    library="Kinesis cannot be read: its client library",
    rejected=REJECTED,
)
ANSWER_SECONDS: Final = 10.0
OPEN_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 0.5
MAX_REQUESTS: Final = 50
MAX_LISTED_SHARDS: Final = 1_000
"""Shards of one answer."""
BIRTHMARK_DIGITS: Final = 12
MS_PER_HOUR: Final = 3_600_000


class StreamInfo(NamedTuple):
    """The stream as the service describes it."""

    created: str
    retention_ms: int
    now_ms: int
    """The time of the service."""

    @property
    def birthmark(self) -> str:
        """A checksum of the time at which the stream was created."""
        return digest(self.created)


class Shard(NamedTuple):
    """A shard: its id, those from which it was made, and its range of hash keys."""

    id: str
    parents: Sequence[str]
    first_hash: int
    last_hash: int


class Record(NamedTuple):
    """A record of a shard."""

    sequence: str
    key: str
    data: bytes
    arrived_ms: int


class Records(NamedTuple):
    """The answer to one request. `next` is the iterator of the next one, or None after the last record of a closed shard."""

    records: Sequence[Record]
    next: str | None
    behind_ms: int


class KinesisClient:
    """The requests about one stream. Errors are `HeadraceError`s."""

    def __init__(self, client: Any, stack: AsyncExitStack, stream: str) -> None:
        self._client = client
        self._stack = stack
        self._stream = stream

    @classmethod
    async def open(cls, connection: Connection, stream: str) -> KinesisClient:
        """Return a client. It sends nothing yet. Raises `UpstreamError`."""
        async with AsyncExitStack() as stack:
            client = await open_client(
                SERVICE,
                connection,
                stack,
                answer_seconds=ANSWER_SECONDS,
                max_requests=MAX_REQUESTS,
                components={"response_parser_factory": _parser_factory},
            )
            return cls(client, stack.pop_all(), stream)
        raise AssertionError

    async def look(self) -> StreamInfo:
        """Return what the service says of the stream. Repeats while the service does not answer, for OPEN_SECONDS."""
        what = f"Stream {self._stream!r} cannot be opened"
        failure: HeadraceError = described(what, TimeoutError(f"no answer within {OPEN_SECONDS:g} s"))
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                while True:
                    try:
                        return await self.describe()
                    except UpstreamError:
                        raise
                    except HeadraceError as error:
                        failure = error
                    await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            raise failure from None

    async def describe(self) -> StreamInfo:
        """Return what the service says of the stream."""
        what = f"Stream {self._stream!r} cannot be read"
        try:
            answer = await self._client.describe_stream_summary(StreamName=self._stream)
        except Exception as error:
            raise described(what, error) from error
        summary = answer["StreamDescriptionSummary"]
        if summary["StreamStatus"] in ("CREATING", "DELETING"):
            raise StreamError(f"{what}: its status is {summary['StreamStatus']}.", hint="It is read once it is active.")
        return StreamInfo(
            str(_milliseconds(summary["StreamCreationTimestamp"])), summary["RetentionPeriodHours"] * MS_PER_HOUR, _service_ms(answer)
        )

    async def shards(self) -> list[Shard]:
        """Return all shards that have records or may get some."""
        shards: list[Shard] = []
        query: dict[str, Any] = {"StreamName": self._stream}
        while True:
            try:
                answer = await self._client.list_shards(MaxResults=MAX_LISTED_SHARDS, **query)
            except Exception as error:
                raise described(f"The shards of stream {self._stream!r} cannot be listed", error) from error
            shards += map(_shard, answer["Shards"])
            if not answer.get("NextToken"):
                return shards
            query = {"NextToken": answer["NextToken"]}

    async def iterator_at(self, shard: str, sequence: str) -> str:
        """Return the iterator of a record and those after it, or of all if the service no longer knows the sequence number."""
        try:
            return await self._iterator(shard, ShardIteratorType="AT_SEQUENCE_NUMBER", StartingSequenceNumber=sequence)
        except HeadraceError as error:
            if error.__cause__ is None or code_of(error.__cause__) != INVALID_ARGUMENT:
                raise
        return await self.iterator_from(shard, None)

    async def iterator_from(self, shard: str, time_ms: int | None) -> str:
        """Return the iterator of the records that arrived at a time or later, or of all if it is None."""
        if time_ms is None:
            return await self._iterator(shard, ShardIteratorType="TRIM_HORIZON")
        return await self._iterator(shard, ShardIteratorType="AT_TIMESTAMP", Timestamp=time_ms / 1_000)

    async def records(self, iterator: str, limit: int) -> Records | None:
        """Return up to `limit` records, or None if the iterator has expired."""
        try:
            answer = await self._client.get_records(ShardIterator=iterator, Limit=limit)
        except Exception as error:
            if code_of(error) == EXPIRED_ITERATOR:
                return None
            raise described(f"Stream {self._stream!r} cannot be read", error) from error
        return Records([_record(one) for one in answer["Records"]], answer.get("NextShardIterator"), answer.get("MillisBehindLatest") or 0)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._stack.aclose()

    async def _iterator(self, shard: str, **begin: Any) -> str:
        try:
            answer = await self._client.get_shard_iterator(StreamName=self._stream, ShardId=shard, **begin)
        except Exception as error:
            if code_of(error) == MISSING:
                raise StreamError(f"Shard {shard} cannot be read: the service no longer has it, or the stream was deleted.") from error
            raise described(f"Shard {shard} cannot be read", error) from error
        return str(answer["ShardIterator"])


def digest(text: str) -> str:
    """Return a short checksum of a text."""
    return sha256(text.encode()).hexdigest()[:BIRTHMARK_DIGITS]


def _shard(shard: Mapping[str, Any]) -> Shard:
    parents = [shard[name] for name in ("ParentShardId", "AdjacentParentShardId") if shard.get(name)]
    hashes = shard["HashKeyRange"]
    return Shard(shard["ShardId"], parents, int(hashes["StartingHashKey"]), int(hashes["EndingHashKey"]))


def _record(record: Mapping[str, Any]) -> Record:
    arrived_ms = _milliseconds(record["ApproximateArrivalTimestamp"])
    return Record(record["SequenceNumber"], record["PartitionKey"], record["Data"], arrived_ms)


def _parser_factory() -> Any:
    """Return the parsers of answers. The library's own parser of times takes half of the time of an answer with many records.

    Requests for temporary credentials have these parsers too, and answers with texts as times.
    """
    from aiobotocore.parsers import AioResponseParserFactory
    from botocore.utils import parse_timestamp

    def parse(value: Any) -> datetime:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
        parsed: datetime = parse_timestamp(value)
        return parsed

    factory = AioResponseParserFactory()
    factory.set_parser_defaults(timestamp_parser=parse)
    return factory


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1_000)


def _service_ms(answer: Mapping[str, Any]) -> int:
    """Return the time at which the service has sent an answer, rounded down to seconds. Without it, that of this machine."""
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        return _milliseconds(parsedate_to_datetime(date))
    except (TypeError, ValueError):
        return int(time.time() * 1_000)
