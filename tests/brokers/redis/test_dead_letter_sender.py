"""Copies of dead letters in a stream of Redis: its entries, and what the server refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from headrace.core.values.message_text import MessageMetadata
from headrace.errors import StreamError, UpstreamError
from headrace.sources.redis.upstream import RedisStreams
from support.processes.redis import RedisServer, shared
from support.sources.dead_letter_contract import DeadLetterSenderContract, DeadLetterTarget, errors_of, kinds, opened
from support.sources.dead_letters import Copied, copied, copy_of
from support.sources.redis import RedisStream

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("redis")]

PAYLOAD = b"data"
KEY = b"who"


class RedisTarget(DeadLetterTarget):
    """A stream for copies, which does not exist yet, beside the stream that is read."""

    server: RedisServer
    source: RedisStream

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server, RedisStream(server))
        self.key = server.create_key()

    @property
    def description(self) -> str:
        return f"stream {self.key}"

    def set_address(self, address: str) -> None:
        self.source.set_connection(f"redis://{address}")

    def upstream(self, **arguments: Any) -> RedisStreams:
        return self.source.upstream(**{"key": KEY.decode(), "dead_letter_stream": self.key} | arguments)

    def entries(self) -> list[dict[bytes, bytes]]:
        """Return the fields of all entries."""
        import redis

        host, _, port = self.address.partition(":")
        with redis.Redis(host, int(port)) as client:
            return [fields for _, fields in client.xrange(self.key)]

    def copies(self) -> list[Copied]:
        copies: list[Copied] = []
        for fields in self.entries():
            key, value = fields.pop(KEY, None), fields.pop(PAYLOAD)
            copies.append(Copied(key, value, {name.decode(): content for name, content in fields.items()}))
        return copies


class TestStream(DeadLetterSenderContract):
    creates = True
    limits: ClassVar[Mapping[str, float]] = {"dead_letters.redis.SEND_SECONDS": 4.0}

    @pytest.fixture
    def target(self) -> Iterator[DeadLetterTarget]:
        target = RedisTarget(shared("redis"))
        yield target
        target.close()

    @pytest.fixture
    def killable(self, own_server: RedisServer) -> Iterator[DeadLetterTarget]:
        target = RedisTarget(own_server)
        yield target
        target.close()


@pytest.fixture(params=["redis", "valkey"])
def target(request: pytest.FixtureRequest) -> Iterator[RedisTarget]:
    """Return a target on the shared server of Redis, then of Valkey."""
    target = RedisTarget(shared(request.param))
    yield target
    target.close()


async def test_an_entry_has_the_fields_of_its_message_and_the_key_is_one_of_them(target: RedisTarget) -> None:
    metadata = MessageMetadata("Ada", (("who", b"Ada"), ("total", b"12.50"), ("total", b"13")))
    async with opened(target.upstream()) as sender:
        assert await sender.send([copy_of(1, b"{}", metadata)]) == [None]
    (fields,) = target.entries()
    assert list(fields)[:3] == [b"data", b"who", b"total"]
    assert (fields[b"who"], fields[b"total"]) == (b"Ada", b"13")


async def test_without_a_payload_the_fields_are_those_of_the_entry(target: RedisTarget) -> None:
    upstream = target.upstream(payload=None, key=None)
    metadata = MessageMetadata(headers=(("a", b"1"), ("b", b"\xff")), malformed="The field 'b' is not UTF-8.")
    async with opened(upstream) as sender:
        assert await sender.send([copy_of(1, b"null", metadata), copy_of(2, b'{"n":1}', MessageMetadata("k"))]) == [None] * 2
    first, second = target.entries()
    assert {name: value for name, value in first.items() if not name.startswith(b"headrace-")} == {b"a": b"1", b"b": b"\xff"}
    assert b"headrace-value" not in first
    assert (second[b"headrace-value"], second[b"headrace-key"]) == (b'{"n":1}', b"k")


async def test_a_key_of_another_type_is_an_error_with_a_hint(target: RedisTarget) -> None:
    target.source.client.set(target.key, "a text")
    async with opened(target.upstream()) as sender:
        (error,) = await errors_of(sender, [copy_of(1)])
    assert isinstance(error, UpstreamError)
    assert (error.hint, "WRONGTYPE" in str(error)) == ("Name the key of a stream.", True)
    assert target.source.client.get(target.key) == "a text"


async def test_a_user_without_the_permission_gets_an_error_with_a_hint(target: RedisTarget) -> None:
    target.source.client.acl_setuser("writer", enabled=True, passwords=["+secret"], commands=["+@connection"], keys=["*"])
    target.source.set_connection(f"redis://writer:secret@{target.address}")
    async with opened(target.upstream()) as sender:
        (error,) = await errors_of(sender, [copy_of(1)])
    assert isinstance(error, UpstreamError)
    assert error.hint is not None
    target.source.client.acl_setuser("writer", enabled=True, commands=["+xadd"])
    async with opened(target.upstream()) as sender:
        assert await sender.send([copy_of(1)]) == [None]
    target.source.client.acl_deluser("writer")


async def test_a_server_without_memory_is_an_error_and_gets_the_copies_later(own_server: RedisServer) -> None:
    target = RedisTarget(own_server)
    before = target.source.client.config_get("maxmemory")["maxmemory"]
    target.source.client.config_set("maxmemory", 1)
    async with opened(target.upstream()) as sender:
        results = await errors_of(sender, [copy_of(1), copy_of(2)])
    target.source.client.config_set("maxmemory", before)
    assert kinds(results) == [StreamError] * 2
    assert "maxmemory" in str(results[0])
    async with opened(target.upstream()) as sender:
        assert await sender.send([copy_of(1), copy_of(2)]) == [None] * 2
    assert [copied(b"", {name.decode(): value for name, value in one.items()}).number for one in target.entries()] == [1, 2]
    target.close()
