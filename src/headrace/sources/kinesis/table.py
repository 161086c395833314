"""The progress of one reader in a table of DynamoDB: an item for each shard, and one for the reader.

The item of the reader counts its openings: each gets a higher *epoch*. An item of a shard has the epoch of the opening that reads it.

Invariants:
- An opening takes an item over only from a lower epoch, and reads what is stored in the same write. A commit needs the epoch of its
  opening. So the commits of an earlier opening fail from then on, without a clock or a lease.
- A commit never lowers the position. So a request that arrives late, after a later one of the same opening, changes nothing.
- A commit that is repeated, because its answer was lost, stores the same again.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

from headrace.core.connection import Connection
from headrace.errors import HeadraceError, UpstreamFenced
from headrace.sources.aws.client import Service, open_client
from headrace.sources.aws.service_errors import code_of
from headrace.sources.kinesis.client import SERVICE, digest
from headrace.sources.kinesis.lanes import Checkpoint
from headrace.sources.kinesis.service_errors import CONDITION_FAILED, TABLE_REJECTED, described_table
from headrace.sources.progress_note import ProgressNote
from headrace.triggers.stream_log import LogMark

TABLE_SERVICE: Final = Service(
    name="dynamodb",
    kinds=SERVICE.kinds,
    hint=SERVICE.hint,
    extra=SERVICE.extra,
    library=SERVICE.library,
    rejected=TABLE_REJECTED,
)
ANSWER_SECONDS: Final = 10.0
MAX_REQUESTS: Final = 50
READER: Final = "reader"
"""The name of the reader's own item in the attribute of the shard."""
ID_BYTES: Final = 6

Item = Mapping[str, Any]


class Reader(NamedTuple):
    """The item of the reader: the stream that it reads, and where the first reading began, in milliseconds since 1970 or None."""

    epoch: int
    id: str
    created: str
    start_ms: int | None

    def lane(self, shard: str) -> str:
        """Return the name of a shard's lane. It is another one if the stream or the progress was deleted."""
        return f"{shard}@{digest(f'{self.created} {self.id}')}"


class Progress(NamedTuple):
    """What a table has of a reader. `lanes` has the checkpoints by lane."""

    reader: Reader | None
    lanes: Mapping[str, Checkpoint]
    marks: Sequence[LogMark | None]


class ProgressTable:
    """The items of one reader. Errors are `HeadraceError`s."""

    def __init__(self, client: Any, stack: AsyncExitStack, connection: str, table: str, reader: str) -> None:
        self._client = client
        self._connection = connection
        self._stack = stack
        self._table = table
        self._reader = reader
        self._epoch = 0
        self._id: str | None = None

    @classmethod
    async def open(cls, connection: Connection, table: str, reader: str) -> ProgressTable:
        """Return the items of a reader. It sends nothing yet. Raises `UpstreamError`."""
        async with AsyncExitStack() as stack:
            client = await open_client(TABLE_SERVICE, connection, stack, answer_seconds=ANSWER_SECONDS, max_requests=MAX_REQUESTS)
            return cls(client, stack.pop_all(), connection.id, table, reader)
        raise AssertionError

    async def read(self) -> Progress:
        """Return what the table has of the reader. Changes nothing."""
        items: list[Item] = []
        page: dict[str, Any] = {}
        while True:
            try:
                answer = await self._client.query(
                    TableName=self._table,
                    ConsistentRead=True,
                    KeyConditionExpression="#reader = :reader",
                    ExpressionAttributeNames={"#reader": READER},
                    ExpressionAttributeValues={":reader": {"S": self._reader}},
                    **page,
                )
            except Exception as error:
                raise self._described("The progress cannot be read", error) from error
            items += answer["Items"]
            if "LastEvaluatedKey" not in answer:
                break
            page = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        own = next((item for item in items if item["shard"]["S"] == READER), None)
        lanes = {item["shard"]["S"]: _checkpoint(item) for item in items if item is not own}
        return Progress(None if own is None else _reader(own), lanes, [ProgressNote.parse(_text(item, "note")).mark for item in items])

    async def begin(self, before: Reader | None, created: str, start_ms: int | None) -> Reader:
        """Begin an opening: get the next epoch. The progress of another stream than the one created then is given up.

        Raises:
            UpstreamFenced: Another reader has begun at the same time.
        """
        values: dict[str, Any] = {":one": {"N": "1"}, ":created": {"S": created}}
        if before is not None and before.created == created:
            changes, condition = "ADD #epoch :one", "#created = :created"
        else:
            changes = "SET #created = :created, #id = :id" + ("" if start_ms is None else ", #start = :start") + " ADD #epoch :one"
            changes += " REMOVE #start" if start_ms is None else ""
            condition = "attribute_not_exists(#created)" if before is None else "#created = :before"
            values[":id"] = {"S": secrets.token_hex(ID_BYTES)}
            if before is not None:
                values[":before"] = {"S": before.created}
            if start_ms is not None:
                values[":start"] = {"N": str(start_ms)}
        item = await self._update("The progress cannot be taken over", READER, changes, condition, values)
        if item is None:
            raise UpstreamFenced(f"Another reader of {self._reader!r} has begun at the same time.")
        reader = _reader(item)
        self._epoch, self._id = reader.epoch, reader.id
        return reader

    async def take_over(self, lane: str, known_ms: int) -> Checkpoint:
        """Take the item of a lane over from earlier openings, or create it with the time before which it got no records. Return the item.

        Raises:
            UpstreamFenced: A later opening has it.
        """
        item = await self._update(
            f"The progress of {lane} cannot be taken over",
            lane,
            "SET #epoch = :epoch, #known = if_not_exists(#known, :known)",
            "attribute_not_exists(#epoch) OR #epoch <= :epoch",
            {":epoch": {"N": str(self._epoch)}, ":known": {"N": str(known_ms)}},
        )
        if item is None:
            raise self._fenced()
        return _checkpoint(item)

    async def commit(self, lane: str, checkpoint: Checkpoint, mark: LogMark | None) -> None:
        """Store the checkpoint of a lane.

        Raises:
            UpstreamFenced: A later opening has the item, or it was deleted.
        """
        values: dict[str, Any] = {
            ":epoch": {"N": str(self._epoch)},
            ":position": {"N": str(checkpoint.position)},
            ":done": {"N": str(checkpoint.done)},
            ":arrived": {"N": str(checkpoint.arrived_ms)},
            ":known": {"N": str(checkpoint.known_ms)},
            ":note": {"S": ProgressNote().text(mark)},
        }
        changes = "SET #position = :position, #done = :done, #arrived = :arrived, #known = :known, #note = :note"
        if checkpoint.sequence is not None:
            changes += ", #sequence = :sequence"
            values[":sequence"] = {"S": checkpoint.sequence}
        if checkpoint.is_finished:
            changes += ", #finished = :finished"
            values[":finished"] = {"BOOL": True}
        condition = "#epoch = :epoch AND (attribute_not_exists(#position) OR #position <= :position)"
        if await self._update(f"The progress of {lane} cannot be stored", lane, changes, condition, values) is None:
            raise self._fenced()

    async def check(self) -> None:
        """Raise `UpstreamFenced` if a later opening has begun, or the progress was deleted."""
        try:
            answer = await self._client.get_item(TableName=self._table, Key=self._key(READER), ConsistentRead=True)
        except Exception as error:
            raise self._described("The progress cannot be read", error) from error
        item: Item = answer.get("Item", {})
        # Progress that was deleted is begun again with the first epoch, and another id.
        if _number(item, "epoch") != self._epoch or _text(item, "id") != self._id:
            raise self._fenced()

    async def delete(self, lane: str) -> None:
        """Delete the item of a lane that is not read any more."""
        try:
            await self._client.delete_item(TableName=self._table, Key=self._key(lane))
        except Exception as error:
            raise self._described(f"The progress of {lane} cannot be deleted", error) from error

    async def aclose(self) -> None:
        """Close the connections."""
        await self._stack.aclose()

    def _described(self, what: str, error: Exception) -> HeadraceError:
        """Return the error of Headrace. Its hint names the connection, which may be another one than that of the stream."""
        failure = described_table(what, error, self._table)
        if failure.hint is not None and "connection" in failure.hint:
            failure.hint += f" The connection is {self._connection!r}."
        return failure

    def _fenced(self) -> UpstreamFenced:
        return UpstreamFenced(f"Another reader has taken over {self._reader!r}, or its progress in table {self._table!r} was deleted.")

    def _key(self, shard: str) -> dict[str, Any]:
        return {"reader": {"S": self._reader}, "shard": {"S": shard}}

    async def _update(self, what: str, shard: str, changes: str, condition: str, values: Mapping[str, Any]) -> Item | None:
        """Return the item after its change, or None if the condition does not hold."""
        words = {word.strip("(),") for word in f"{changes} {condition}".replace("(", " (").split()}
        try:
            answer = await self._client.update_item(
                TableName=self._table,
                Key=self._key(shard),
                UpdateExpression=changes,
                ConditionExpression=condition,
                ExpressionAttributeNames={word: word[1:] for word in words if word.startswith("#")},
                ExpressionAttributeValues=values,
                ReturnValues="ALL_NEW",
            )
        except Exception as error:
            if code_of(error) == CONDITION_FAILED:
                return None
            raise self._described(what, error) from error
        item: Item = answer["Attributes"]
        return item


def _reader(item: Item) -> Reader:
    start = item.get("start")
    return Reader(_number(item, "epoch"), item["id"]["S"], item["created"]["S"], None if start is None else int(start["N"]))


def _checkpoint(item: Item) -> Checkpoint:
    return Checkpoint(
        _number(item, "position"),
        _text(item, "sequence"),
        _number(item, "done"),
        _number(item, "arrived"),
        _number(item, "known"),
        bool(item.get("finished", {}).get("BOOL")),
    )


def _number(item: Item, name: str) -> int:
    return int(item.get(name, {}).get("N", 0))


def _text(item: Item, name: str) -> str | None:
    text: str | None = item.get(name, {}).get("S")
    return text
