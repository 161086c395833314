"""Copies of dead letters in a queue of RabbitMQ: what each confirm says, and which headers the server would follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from headrace.core.values.message_text import MessageMetadata
from headrace.errors import CopyRejected, StreamError, UpstreamError
from headrace.sources.rabbitmq.upstream import RabbitMQ
from headrace.triggers.upstream import Upstream
from support.processes.rabbitmq import RabbitServer, shared
from support.sources.dead_letter_contract import DeadLetterSenderContract, DeadLetterTarget, errors_of, kinds, opened
from support.sources.dead_letters import Copied, copied, copy_of
from support.sources.rabbitmq import MakeStream, RabbitQueue

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("rabbitmq-outages")]

MAX_MESSAGE_BYTES = 16 * 1024 * 1024


class RabbitTarget(DeadLetterTarget):
    """A queue for copies, beside the queue that is read."""

    server: RabbitServer
    source: RabbitQueue

    def __init__(self, server: RabbitServer, kind: str = "classic", **arguments: Any) -> None:
        super().__init__(server, RabbitQueue(server))
        self.queue = server.create_queue(kind, **arguments)

    @property
    def description(self) -> str:
        return f"queue {self.queue}"

    def set_address(self, address: str) -> None:
        self.source.set_connection(f"amqp://guest:guest@{address}/")

    def upstream(self, **arguments: Any) -> RabbitMQ:
        return self.source.upstream(**{"dead_letter_queue": self.queue} | arguments)

    def upstream_to_missing(self) -> RabbitMQ:
        return self.upstream(dead_letter_queue=f"{self.queue}-missing")

    def has_missing(self) -> bool:
        return self.server.admin.get(f"/queues/%2F/{self.queue}-missing").status_code != 404

    def copies(self) -> list[Copied]:
        copies: list[Copied] = []
        for body, properties in self.server.take(self.queue):
            headers = {name: value.encode() if isinstance(value, str) else bytes(value) for name, value in properties.headers.items()}
            id = f"{headers['headrace-id'].decode()}/{headers['headrace-number'].decode()}"
            assert (properties.delivery_mode, properties.message_id) == (2, id)
            copies.append(copied(body, headers))
        return copies

    def close(self) -> None:
        self.server.delete_queue(self.queue)
        self.source.close()


class TestQueue(DeadLetterSenderContract):
    large_bytes = MAX_MESSAGE_BYTES + 1
    limits: ClassVar[Mapping[str, float]] = {"dead_letters.rabbitmq.SEND_SECONDS": 4.0}

    @pytest.fixture
    def target(self) -> Iterator[DeadLetterTarget]:
        target = RabbitTarget(shared())
        yield target
        target.close()

    @pytest.fixture
    def killable(self, own_server: RabbitServer) -> Iterator[DeadLetterTarget]:
        target = RabbitTarget(own_server)
        yield target
        target.close()


@pytest.fixture
def target() -> Iterator[RabbitTarget]:
    """Return a target on the shared server."""
    target = RabbitTarget(shared())
    yield target
    target.close()


async def test_headers_that_the_server_follows_are_renamed_and_a_copy_is_in_one_queue(target: RabbitTarget) -> None:
    other = RabbitQueue(target.server)
    headers = (("CC", f'["{other.name}"]'.encode()), ("BCC", b"[]"), ("x-death", b"[]"), ("x-request-id", b"7"), ("expiration", b"1"))
    async with opened(target.upstream()) as sender:
        assert await sender.send([copy_of(1, metadata=MessageMetadata("orders", headers))]) == [None]
    (copy,) = target.copies()
    assert copy.key == b"orders"
    expected = {"headrace-CC", "headrace-BCC", "headrace-x-death", "x-request-id", "expiration"}
    assert expected <= copy.headers.keys()
    assert not {"CC", "BCC", "x-death"} & copy.headers.keys()
    assert other.ready() == 0
    other.close()


async def test_headers_beyond_a_frame_are_rejected_before_they_are_sent(target: RabbitTarget) -> None:
    copies = [copy_of(1), copy_of(2, metadata=MessageMetadata(headers=(("large", b"x" * 200_000),))), copy_of(3)]
    async with opened(target.upstream()) as sender:
        results = await sender.send(copies)
    assert kinds(results) == [None, CopyRejected, None]
    assert "frame_max" in str(results[1])
    assert [copy.number for copy in target.copies()] == [1, 3]


async def test_the_others_of_a_call_are_taken_if_the_server_refuses_a_copy_among_them(
    target: RabbitTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may have a lower limit than that from which a copy is sent alone."""
    monkeypatch.setattr("headrace.sources.dead_letters.rabbitmq.BATCH_BYTES", 2 * MAX_MESSAGE_BYTES)
    copies = [copy_of(number, b"x" * (MAX_MESSAGE_BYTES + 1 if number == 2 else 10)) for number in range(6)]
    async with opened(target.upstream()) as sender:
        assert kinds(await sender.send(copies)) == [CopyRejected if number == 2 else None for number in range(6)]
    assert {copy.number for copy in target.copies()} == {0, 1, 3, 4, 5}


async def test_a_full_queue_is_an_error_and_gets_the_copies_later() -> None:
    target = RabbitTarget(shared(), x_max_length=1, x_overflow="reject-publish")
    async with opened(target.upstream()) as sender:
        assert await sender.send([copy_of(1)]) == [None]
        results = await sender.send([copy_of(2)])
    assert kinds(results) == [StreamError]
    assert "nack" in str(results[0])
    assert [copy.number for copy in target.copies()] == [1]
    async with opened(target.upstream()) as sender:
        assert await sender.send([copy_of(2)]) == [None]
    target.close()


async def test_a_user_who_may_not_write_gets_an_error_with_a_hint(target: RabbitTarget) -> None:
    target.server.create_user("shop", "secret", read=".*")
    target.source.set_connection(f"amqp://shop:secret@{target.address}/")
    async with opened(target.upstream()) as sender:
        (error,) = await errors_of(sender, [copy_of(1)])
    assert isinstance(error, UpstreamError)
    assert error.hint is not None
    assert "amq" in error.hint
    target.server.create_user("shop", "secret", read=".*", write=r"^amq\.default$")
    async with opened(target.upstream()) as sender:
        assert await sender.send([copy_of(1)]) == [None]


@pytest.mark.parametrize("kind", ["quorum", "stream"])
async def test_quorum_queues_and_streams_take_copies(kind: str) -> None:
    target = RabbitTarget(shared(), kind)
    async with opened(target.upstream()) as sender:
        assert await sender.send([copy_of(number) for number in range(50)]) == [None] * 50
    if kind == "quorum":
        assert [copy.number for copy in target.copies()] == [*range(50)]
    target.close()


async def test_dead_letters_of_a_stream_are_copied_too(target: RabbitTarget, make_stream: MakeStream) -> None:
    upstream: Upstream = make_stream(target.server).streams(dead_letter_queue=target.queue)
    async with opened(upstream) as sender:
        assert await sender.send([copy_of(1)]) == [None]
    assert [copy.number for copy in target.copies()] == [1]
