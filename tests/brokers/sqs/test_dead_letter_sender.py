"""Copies of dead letters in queues of SQS."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from headrace.core.values.message_text import MessageMetadata
from headrace.errors import CopyRejected, HeadraceError, StreamError
from headrace.ports.dead_letter_sender import DeadLetterCopy
from headrace.sources.dead_letters.cloud.sqs import ATTRIBUTE, MAX_ATTRIBUTES, MAX_BYTES
from headrace.sources.sqs.upstream import SQS
from support.processes.elasticmq import ElasticMq, shared
from support.processes.http_gate import GateAnswer, HttpGate
from support.sources.dead_letter_contract import DeadLetterSenderContract, DeadLetterTarget, DeadLetterTargetContract, kinds, opened
from support.sources.dead_letters import Copied, bytes_of, copied, copy_of
from support.sources.sqs import SqsQueue

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("sqs")]


class SqsTarget(DeadLetterTarget):
    """A dead-letter queue."""

    server: ElasticMq
    source: SqsQueue

    def __init__(self, server: ElasticMq, *, fifo: bool = False) -> None:
        super().__init__(server, SqsQueue(server))
        self.dead = SqsQueue(server, fifo=fifo)

    @property
    def description(self) -> str:
        return f"queue {self.dead.name}"

    def set_address(self, address: str) -> None:
        self.source.set_address(address)

    def upstream(self, **arguments: Any) -> SQS:
        return self.source.upstream(**{"dead_letter_queue": self.dead.name} | arguments)

    def upstream_to_missing(self) -> SQS:
        return self.upstream(dead_letter_queue="missing")

    def has_missing(self) -> bool:
        return any(url.endswith("/missing") for url in self.server.client.list_queues().get("QueueUrls", ()))

    def copies(self) -> list[Copied]:
        return [_copied(message) for message in self.messages()]

    def messages(self) -> list[dict[str, Any]]:
        """Take all messages of the queue."""
        taken: list[dict[str, Any]] = []
        while messages := self.server.receive(self.dead.name, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"]):
            entries = [{"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]} for number, message in enumerate(messages)]
            self.server.client.delete_message_batch(QueueUrl=self.server.url(self.dead.name), Entries=entries)
            taken += messages
        return taken

    def close(self) -> None:
        self.source.close()
        self.dead.close()


class EntryFaults(HttpGate):
    """Keeps the entries with these bodies from the server, each once, and says in the answer that the service has failed on them."""

    def __init__(self, target: str, bodies: Sequence[str]) -> None:
        self.remaining = {*bodies}
        super().__init__(target)

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> GateAnswer:
        request = json.loads(body)
        entries = request.get("Entries", [])
        failing = {entry["Id"]: entry["MessageBody"] for entry in entries if entry["MessageBody"] in self.remaining}
        if not failing:
            return self.pass_on(path, headers, body)
        self.remaining -= {*failing.values()}
        failed = [{"Id": id, "SenderFault": False, "Code": "InternalError"} for id in failing]
        passed = [entry for entry in entries if entry["Id"] not in failing]
        answer: dict[str, Any] = {"Successful": []}
        if passed:
            answer = json.loads(self.pass_on(path, headers, json.dumps(request | {"Entries": passed}).encode()).body)
        return GateAnswer(200, "application/x-amz-json-1.0", json.dumps(answer | {"Failed": failed}).encode())


def _copied(message: Mapping[str, Any]) -> Copied:
    """Return the copy that a message is, as the guide says."""
    attributes = dict(message["MessageAttributes"])
    fields = json.loads(attributes.pop(ATTRIBUTE)["StringValue"])
    body = message["Body"].encode()
    value = b64decode(body) if fields.pop("encoding", None) == "base64" else body
    headers: dict[str, bytes | None] = {
        name: one["BinaryValue"] if "BinaryValue" in one else one["StringValue"].encode() for name, one in attributes.items()
    }
    headers |= bytes_of(fields.pop("headers", {}))
    fields["triggers"] = json.dumps(fields["triggers"], separators=(",", ":"))
    return copied(value, headers | {f"headrace-{name}": str(field).encode() for name, field in fields.items()})


class SqsContract(DeadLetterTargetContract):
    large_bytes = MAX_BYTES
    limits: ClassVar[Mapping[str, float]] = {"dead_letters.cloud.sqs.ANSWER_SECONDS": 1.0, "aws.client.CONNECT_SECONDS": 1.0}
    fifo: ClassVar[bool]

    @pytest.fixture
    def target(self) -> Iterator[DeadLetterTarget]:
        target = SqsTarget(shared(), fifo=self.fifo)
        yield target
        target.close()

    @pytest.fixture
    def killable(self, own_server: ElasticMq) -> Iterator[DeadLetterTarget]:
        target = SqsTarget(own_server, fifo=self.fifo)
        yield target
        target.close()


class TestStandardQueue(SqsContract, DeadLetterSenderContract):
    ordered = False
    has_any_bytes = False
    fifo = False


class TestFifoQueue(SqsContract):
    fifo = True


@pytest.fixture
def target() -> Iterator[SqsTarget]:
    target = SqsTarget(shared(), fifo=True)
    yield target
    target.close()


async def test_a_copy_in_a_fifo_queue_has_the_lane_as_its_group_and_a_repeated_one_is_dropped(target: SqsTarget) -> None:
    copies = [copy_of(1, lane="group a@0123456789ab"), copy_of(2, lane="g@h@0123456789ab"), copy_of(3, lane=None), copy_of(4)]
    async with opened(target.upstream()) as sender:
        assert await sender.send(copies) == [None] * 4
        assert await sender.send(copies) == [None] * 4
    messages = await asyncio.to_thread(target.messages)
    groups = {_copied(message).number: message["Attributes"]["MessageGroupId"] for message in messages}
    assert len(messages) == 4
    assert len(groups.pop(1)) == 64, "a name with a space is not a group: its SHA-256"
    assert groups == {2: "g@h", 3: "orders", 4: "orders/0"}
    ids = {message["Attributes"]["MessageDeduplicationId"] for message in messages}
    assert ids == {f"letter-{number}/{number}" for number in range(1, 5)}


async def test_no_copy_of_a_group_in_a_fifo_queue_overtakes_one_that_the_service_has_failed_on(target: SqsTarget) -> None:
    copies = [copy_of(number, b'{"n":%d}' % number, lane="abbac"[number % 5]) for number in range(20)]
    gate = EntryFaults(target.address, [copies[number].data.decode() for number in (1, 5, 6, 18)])
    target.set_address(gate.address)
    try:
        failures = await _send_until_taken(target, copies)
    finally:
        gate.close()
    assert not gate.remaining
    assert failures == {StreamError}
    numbers: dict[str, list[int]] = {}
    for message in await asyncio.to_thread(target.messages):
        numbers.setdefault(message["Attributes"]["MessageGroupId"], []).append(_copied(message).number)
    assert numbers == {lane: [copy.dead_letter.number for copy in copies if copy.dead_letter.lane == lane] for lane in ("a", "b", "c")}


async def _send_until_taken(target: SqsTarget, copies: Sequence[DeadLetterCopy]) -> set[type[HeadraceError] | None]:
    """Send copies as the copier does: after one that failed, all from it on. Return the classes of the failures."""
    failures: set[type[HeadraceError] | None] = set()
    while copies:
        async with opened(target.upstream()) as sender:
            results = kinds(await sender.send(copies))
        taken = next((number for number, result in enumerate(results) if result is not None), len(copies))
        failures |= {*results[taken : taken + 1]}
        copies = copies[taken:]
    return failures


async def test_attributes_for_which_there_is_no_room_are_in_the_json(target: SqsTarget) -> None:
    headers = tuple((f"name{number}", b"value") for number in range(12))
    odd = (("aws.mine", b"1"), ("a name", b"2"), ("a..b", b"3"), ("Binary", b"\xff"))
    async with opened(target.upstream()) as sender:
        assert await sender.send([copy_of(1, metadata=MessageMetadata("k", (*odd, *headers)))]) == [None]
    (message,) = await asyncio.to_thread(target.messages)
    attributes = message["MessageAttributes"]
    assert len(attributes) == MAX_ATTRIBUTES
    assert attributes["Binary"]["BinaryValue"] == b"\xff"
    fields = json.loads(attributes[ATTRIBUTE]["StringValue"])
    assert fields["key"] == "k"
    assert fields["headers"].keys() == {"aws.mine", "a name", "a..b"} | {name for name, _ in headers[8:]}


async def test_requests_are_divided_by_the_limit_of_bytes(target: SqsTarget) -> None:
    async with opened(target.upstream()) as sender:
        results = await sender.send([copy_of(number, b"x" * 400_000) for number in range(5)] + [copy_of(5, b"")])
    assert kinds(results) == [None] * 5 + [CopyRejected], "SQS takes no empty message"
    assert [copy.number for copy in await asyncio.to_thread(target.copies)] == [*range(5)]


async def test_the_content_of_an_envelope_is_named(target: SqsTarget) -> None:
    marked = MessageMetadata(headers=(("sns_message_id", b"m"),), malformed="not JSON")
    copies = [
        copy_of(1, b'{"n":1}'),
        copy_of(2, b"<not JSON>", marked),
        copy_of(3, b"<not SNS>", MessageMetadata(malformed="not a notification")),
    ]
    async with opened(target.upstream(decode="sns")) as sender:
        assert await sender.send(copies) == [None] * 3
    read = await asyncio.to_thread(target.copies)
    assert [copy.value for copy in read] == [copy.data for copy in copies]
    assert [copy.headers.get("headrace-decode") for copy in read] == [b"sns", b"sns", None]
