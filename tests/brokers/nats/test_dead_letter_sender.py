"""Copies of dead letters in a stream of NATS: what each acknowledgement says, and which headers the server would follow."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from headrace.core.values.message_text import MessageMetadata
from headrace.errors import CopyRejected, StreamError, UpstreamError
from headrace.sources.nats.upstream import Nats
from support.processes.nats import NatsServer, shared
from support.sources.dead_letter_contract import DeadLetterSenderContract, DeadLetterTarget, errors_of, kinds, opened
from support.sources.dead_letters import Copied, bytes_of, copied, copy_of
from support.sources.nats import NatsStream

pytestmark = [pytest.mark.brokers, pytest.mark.slow, pytest.mark.xdist_group("nats")]

ON_PACKAGE = pytest.mark.xdist_group("package")
MESSAGE_ID = "Nats-Msg-Id"


class NatsTarget(DeadLetterTarget):
    """A stream for copies, beside the stream that is read."""

    server: NatsServer
    source: NatsStream

    def __init__(self, server: NatsServer, **config: Any) -> None:
        super().__init__(server, NatsStream(server))
        self.stream = server.create_stream(**config)
        self.subject = f"{self.stream}.dead"

    @property
    def description(self) -> str:
        return f"subject {self.subject}"

    def set_address(self, address: str) -> None:
        self.source.set_connection(f"nats://{address}")

    def upstream(self, **arguments: Any) -> Nats:
        return self.source.upstream(**{"dead_letter_subject": self.subject} | arguments)

    def upstream_to_missing(self) -> Nats:
        return self.upstream(dead_letter_subject=f"{self.stream}-missing.dead")

    def has_missing(self) -> bool:
        return bool(self.server.api("STREAM.NAMES", {"subject": f"{self.stream}-missing.dead"})["streams"])

    def raw_copies(self) -> list[tuple[bytes, dict[str, str]]]:
        """Return the values and headers of all messages of the stream."""
        state = self.server.api(f"STREAM.INFO.{self.stream}")["state"]
        messages = [self.server.api(f"STREAM.MSG.GET.{self.stream}", {"seq": seq + 1})["message"] for seq in range(state["last_seq"])]
        return [(base64.b64decode(one.get("data", "")), _headers(base64.b64decode(one["hdrs"]))) for one in messages]

    def copies(self) -> list[Copied]:
        copies: list[Copied] = []
        for value, headers in self.raw_copies():
            assert headers.pop(MESSAGE_ID) == f"{headers['headrace-id']}/{headers['headrace-number']}"
            copies.append(copied(value, bytes_of(headers)))
        return copies

    def close(self) -> None:
        if not self.server.is_closed:
            self.server.delete_stream(self.stream)
        self.source.close()


def _headers(block: bytes) -> dict[str, str]:
    first, *lines = block.removesuffix(b"\r\n\r\n").split(b"\r\n")
    assert first == b"NATS/1.0"
    return dict(line.decode().split(": ", 1) for line in lines)


@pytest.mark.xdist_group("go")
class TestSubject(DeadLetterSenderContract):
    large_bytes = 20_000
    limits: ClassVar[Mapping[str, float]] = {"dead_letters.nats.SEND_SECONDS": 4.0}

    @pytest.fixture
    def target(self) -> Iterator[DeadLetterTarget]:
        target = NatsTarget(shared("go"), max_msg_size=20_000)
        yield target
        target.close()

    @pytest.fixture
    def killable(self) -> Iterator[DeadLetterTarget]:
        server = NatsServer("go")
        yield NatsTarget(server)
        server.close()


@pytest.fixture(params=[pytest.param("package", marks=ON_PACKAGE)])
def target(request: pytest.FixtureRequest) -> Iterator[NatsTarget]:
    """Return a stream on the server of Debian's package."""
    target = NatsTarget(shared(request.param))
    yield target
    target.close()


async def test_a_repeated_copy_is_stored_once(target: NatsTarget) -> None:
    for _ in range(2):
        async with opened(target.upstream()) as sender:
            assert await sender.send([copy_of(1), copy_of(2)]) == [None] * 2
    assert [copy.number for copy in target.copies()] == [1, 2]


async def test_headers_that_the_server_follows_are_renamed(target: NatsTarget) -> None:
    headers = ((MESSAGE_ID, b"m-1"), ("nats-rollup", b"all"), ("Nats-Expected-Last-Sequence", b"77"), ("a/b", b"1"))
    async with opened(target.upstream()) as sender:
        assert await sender.send([copy_of(0), copy_of(1, metadata=MessageMetadata("orders.eu", headers))]) == [None] * 2
    first, second = target.copies()
    assert (first.key, second.key) == (None, b"orders.eu")
    renamed = {"headrace-Nats-Msg-Id": b"m-1", "headrace-nats-rollup": b"all", "headrace-Nats-Expected-Last-Sequence": b"77", "a%2Fb": b"1"}
    assert renamed.items() <= second.headers.items()


async def test_attributes_of_a_cloudevent_have_their_names_of_nats(target: NatsTarget) -> None:
    async with opened(target.upstream(decode="cloudevents")) as sender:
        assert await sender.send([copy_of(1, metadata=MessageMetadata("k", (("ce_id", b"7"),)))]) == [None]
    (copy,) = target.copies()
    assert copy.headers["ce-id"] == b"7"
    assert copy.headers["headrace-decode"] == b"cloudevents"


async def test_copies_beyond_the_limits_of_the_server_are_rejected(target: NatsTarget) -> None:
    copies = [
        copy_of(1, b"x" * 1024 * 1024),
        copy_of(2, metadata=MessageMetadata(headers=(("large", b"x" * 65_536),))),
        copy_of(3),
    ]
    async with opened(target.upstream()) as sender:
        results = await sender.send(copies)
    assert kinds(results) == [CopyRejected, CopyRejected, None]
    assert "max_payload" in str(results[0])
    assert [copy.number for copy in target.copies()] == [3]


@ON_PACKAGE
async def test_a_full_stream_is_an_error_and_gets_the_copies_later() -> None:
    target = NatsTarget(shared("package"), max_msgs=1, discard="new")
    async with opened(target.upstream()) as sender:
        results = await sender.send([copy_of(1), copy_of(2)])
    assert kinds(results) == [None, StreamError]
    target.server.api(f"STREAM.PURGE.{target.stream}")
    async with opened(target.upstream()) as sender:
        assert await sender.send([copy_of(2)]) == [None]
    target.close()


async def test_a_subject_of_the_stream_that_is_read_is_refused_before_a_copy_is_sent(target: NatsTarget) -> None:
    async with opened(target.upstream(dead_letter_subject=f"{target.source.name}.dead")) as sender:
        with pytest.raises(UpstreamError, match="is read by the upstream itself") as error:
            await sender.send([copy_of(1)])
    assert error.value.hint is not None
    assert target.server.api(f"STREAM.INFO.{target.source.name}")["state"]["messages"] == 0


async def test_other_subjects_of_the_stream_that_is_read_are_accepted(target: NatsTarget) -> None:
    upstream = target.source.upstream("orders.>", dead_letter_subject=f"{target.source.name}.dead")
    async with opened(upstream) as sender:
        assert await sender.send([copy_of(1)]) == [None]


@pytest.mark.parametrize("kind", ["mirror", "source"])
async def test_a_subject_of_a_stream_that_the_read_stream_copies_is_refused_with_the_first_copy(target: NatsTarget, kind: str) -> None:
    copied_stream = {"name": target.stream}
    config: dict[str, Any] = {"mirror": copied_stream, "subjects": []} if kind == "mirror" else {"sources": [copied_stream]}
    reading = NatsStream(target.server, **config)
    async with opened(reading.upstream(dead_letter_subject=target.subject)) as sender:
        with pytest.raises(UpstreamError, match="is read by the upstream itself"):
            await sender.send([copy_of(1), copy_of(2)])
    assert [copy.number for copy in target.copies()] == [1]
    reading.close()


async def test_an_answer_of_another_program_does_not_confirm_a_copy(target: NatsTarget) -> None:
    subject = f"{target.stream}-other"
    target.server.call(target.server.answer(subject, b"+OK"))
    async with opened(target.upstream(dead_letter_subject=subject)) as sender:
        (error,) = await errors_of(sender, [copy_of(1)])
    assert isinstance(error, UpstreamError)
    assert "another program answers" in str(error)
    target.server.call(target.server.end_takers())


@ON_PACKAGE
async def test_a_missing_permission_is_an_error_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sources.nats.client.ANSWER_SECONDS", 1.0)
    denied = 'publish: {deny: ["*.dead"]}'
    users = f"authorization {{ users: [{{user: admin, password: x}}, {{user: shop, password: y, permissions: {{{denied}}}}}] }}"
    server = NatsServer("package", users, user="admin", password="x")
    target = NatsTarget(server)
    target.source.set_connection(f"nats://shop:y@{server.address}")
    async with opened(target.upstream()) as sender:
        results = await errors_of(sender, [copy_of(1)])
    assert kinds(results) == [UpstreamError]
    assert results[0] is not None
    assert results[0].hint is not None
    assert "permissions violation" in str(results[0]).lower()
    server.close()
