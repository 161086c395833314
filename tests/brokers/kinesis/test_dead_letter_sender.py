"""Copies of dead letters in streams of Kinesis."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from headrace.core.values.message_text import MessageMetadata
from headrace.errors import StreamError
from headrace.sources.kinesis.upstream import Kinesis
from support.processes.http_gate import GateAnswer, HttpGate
from support.processes.moto import Moto, require, shared
from support.sources.dead_letter_contract import DeadLetterSenderContract, DeadLetterTarget, kinds, opened
from support.sources.dead_letters import Copied, bytes_of, copied, copy_of
from support.sources.kinesis import KinesisStream

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.slow,
    pytest.mark.xdist_group("kinesis"),
    pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning"),  # a record near the limit of the service
]

LARGE_BYTES = 1_048_577


class KinesisTarget(DeadLetterTarget):
    """A dead-letter stream of one shard."""

    server: Moto
    source: KinesisStream

    def __init__(self, server: Moto) -> None:
        super().__init__(server, KinesisStream(server))
        self.dead = KinesisStream(server)

    @property
    def description(self) -> str:
        return f"stream {self.dead.name}"

    def set_address(self, address: str) -> None:
        self.source.set_address(address)

    def upstream(self, **arguments: Any) -> Kinesis:
        return self.source.upstream(**{"dead_letter_stream": self.dead.name} | arguments)

    def upstream_to_missing(self) -> Kinesis:
        return self.upstream(dead_letter_stream="missing")

    def has_missing(self) -> bool:
        return "missing" in self.server.kinesis.list_streams()["StreamNames"]

    def copies(self) -> list[Copied]:
        return [_copied(record["Data"]) for record in self.records()]

    def records(self) -> list[dict[str, Any]]:
        """Return all records of the stream."""
        (shard,) = self.server.shards(self.dead.name)
        begin = {"StreamName": self.dead.name, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = self.server.kinesis.get_shard_iterator(**begin)["ShardIterator"]
        records: list[dict[str, Any]] = []
        while answer := self.server.kinesis.get_records(ShardIterator=iterator):
            records += answer["Records"]
            iterator = answer["NextShardIterator"]
            if not answer["Records"]:
                break
        return records

    def start(self) -> None:
        """Start the server, which has forgotten everything."""
        self.server.start()
        for stream in (self.source, self.dead):
            self.server.create_stream(name=stream.name)

    def close(self) -> None:
        self.source.close()
        self.dead.close()


def _copied(data: bytes) -> Copied:
    """Return the copy that a record is, as the guide says."""
    fields = json.loads(data)
    value = fields.pop("value")
    value = b64decode(value) if fields.pop("encoding", None) == "base64" else value.encode()
    headers = bytes_of(fields.pop("headers", {}))
    fields["triggers"] = json.dumps(fields["triggers"], separators=(",", ":"))
    return copied(value, headers | {f"headrace-{name}": str(field).encode() for name, field in fields.items()})


class RecordFaults(HttpGate):
    """Keeps the records with these numbers from the server, each once, and says in the answer that the service has no room for them."""

    def __init__(self, target: str, *numbers: int) -> None:
        self.remaining = {*numbers}
        super().__init__(target)

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> GateAnswer:
        request = json.loads(body)
        numbers = [_copied(b64decode(record["Data"])).number for record in request["Records"]]
        failing = self.remaining.intersection(numbers)
        if not failing:
            return self.pass_on(path, headers, body)
        self.remaining -= failing
        passed = [record for number, record in zip(numbers, request["Records"], strict=True) if number not in failing]
        stored: list[Any] = []
        if passed:
            stored = json.loads(self.pass_on(path, headers, json.dumps(request | {"Records": passed}).encode()).body)["Records"]
        fault = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "Rate exceeded."}
        results = [fault if number in failing else stored.pop(0) for number in numbers]
        text = json.dumps({"FailedRecordCount": len(failing), "Records": results})
        return GateAnswer(200, "application/x-amz-json-1.1", text.encode())


@pytest.fixture(scope="module")
def own_server() -> Iterator[Moto]:
    """Return a server that the tests of this module may kill."""
    require()
    server = Moto()
    yield server
    server.close()


@pytest.fixture
def target() -> Iterator[KinesisTarget]:
    target = KinesisTarget(shared())
    yield target
    target.close()


class TestStream(DeadLetterSenderContract):
    large_bytes = LARGE_BYTES
    forgets = True
    limits: ClassVar[Mapping[str, float]] = {"dead_letters.cloud.kinesis.ANSWER_SECONDS": 1.0, "aws.client.CONNECT_SECONDS": 1.0}

    @pytest.fixture
    def target(self) -> Iterator[DeadLetterTarget]:
        target = KinesisTarget(shared())
        yield target
        target.close()

    @pytest.fixture
    def killable(self, own_server: Moto) -> Iterator[DeadLetterTarget]:
        target = KinesisTarget(own_server)
        yield target
        target.close()


async def test_the_partition_key_is_that_of_the_message_or_the_lane(target: KinesisTarget) -> None:
    copies = [copy_of(1, metadata=MessageMetadata("k1")), copy_of(2), copy_of(3, lane=None), copy_of(4, lane="l" * 300)]
    async with opened(target.upstream()) as sender:
        assert await sender.send(copies) == [None] * 4
    keys = {_copied(record["Data"]).number: record["PartitionKey"] for record in await asyncio.to_thread(target.records)}
    assert len(keys.pop(4)) == 64, "a lane that is too long is replaced by its SHA-256"
    assert keys == {1: "k1", 2: "orders/0", 3: "orders"}


async def test_no_copy_of_a_partition_key_overtakes_one_that_the_service_has_failed_on(target: KinesisTarget) -> None:
    copies = [copy_of(number, lane="abbac"[number % 5]) for number in range(20)]
    gate = RecordFaults(target.address, 1, 5, 6, 18)
    target.set_address(gate.address)
    waiting = copies
    try:
        while waiting:
            async with opened(target.upstream()) as sender:
                results = kinds(await sender.send(waiting))
            taken = next((number for number, result in enumerate(results) if result is not None), len(waiting))
            assert {*results[taken : taken + 1]} <= {StreamError}
            waiting = waiting[taken:]
    finally:
        gate.close()
    assert not gate.remaining
    numbers: dict[str, list[int]] = {}
    for record in await asyncio.to_thread(target.records):
        known = numbers.setdefault(record["PartitionKey"], [])
        number = _copied(record["Data"]).number
        assert not known or number > known[-1] or number in known, "a repeated copy is a known one"
        known.append(number)
    assert {lane: sorted({*sent}) for lane, sent in numbers.items()} == {
        lane: [copy.dead_letter.number for copy in copies if copy.dead_letter.lane == lane] for lane in ("a", "b", "c")
    }
