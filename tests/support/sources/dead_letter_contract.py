"""The contract of the senders of copies of dead letters, on the real server of each broker."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import pytest

from headrace.core.values.message_text import MessageMetadata
from headrace.errors import CopyRejected, HeadraceError, StreamError, UpstreamError
from headrace.ports.dead_letter_sender import DeadLetterCopy, DeadLetterSender
from headrace.sources.dead_letters.sender import make_sender
from headrace.triggers.upstream import Upstream
from support.processes.broker_server import BrokerServer
from support.processes.deployment import Deployment
from support.processes.deployment import until as until_sync
from support.processes.ports import free_port
from support.processes.proxy import Proxy
from support.sources.dead_letters import Copied, copy_of
from support.sources.reading import until

CLOSE_SECONDS: Final = 15.0
"""In which a sender is closed, whatever its server does."""
ERROR_SECONDS: Final = 30.0
"""In which a sender with shortened limits reports that its server does not answer."""

PROJECT: Final = """
from headrace import Project
from headrace.triggers.upstream import load_upstream

project = Project("shop")
project.watch("orders", load_upstream({classpath!r}, {arguments!r}), id="$.n")
"""

KINDS: Final = (CopyRejected, StreamError, UpstreamError)

ODD_VALUES: Final = {
    "bytes": b"\xff\xfe",
    "empty": b"",
    "lines": b"a\r\nb",
    "nul": b"\x00",
    "spaces": b" a ",
    "text": "é\u2028\U0001f600".encode(),
    "noncharacter": "\ufffe".encode(),
}
"""Values of headers that a broker with texts as headers must encode."""


class Source(Protocol):
    """What an upstream reads."""

    connection: str

    def send(self, values: Sequence[bytes], /) -> object:
        """Send messages."""

    def close(self) -> None:
        """Release all that this process holds."""


class DeadLetterTarget(ABC):
    """A target of copies on a server, an upstream whose dead letters go there, and what that upstream reads.

    Each test gets a new one, whose target is empty. Reading and sending use the server directly, not the connection of the upstream.
    """

    def __init__(self, server: BrokerServer, source: Source) -> None:
        self.server = server
        self.source = source

    @property
    def connection(self) -> str:
        """The id of the connection of the upstream, which an environment variable of this process has."""
        return self.source.connection

    @property
    def address(self) -> str:
        """The address of the server, as `host:port`."""
        return self.server.address

    @property
    @abstractmethod
    def description(self) -> str:
        """The target, as `headrace upstreams list` names it."""

    @abstractmethod
    def set_address(self, address: str) -> None:
        """Set the address of the connection."""

    @abstractmethod
    def upstream(self) -> Upstream:
        """Return an upstream with the target. It reads JSON."""

    def upstream_to_missing(self) -> Upstream:
        """Return an upstream with a target that does not exist."""
        raise NotImplementedError

    def has_missing(self) -> bool:
        """Return whether the target of `upstream_to_missing` exists."""
        raise NotImplementedError

    def send(self, messages: Sequence[bytes]) -> None:
        """Send messages that the upstream reads."""
        self.source.send(messages)

    @abstractmethod
    def copies(self) -> list[Copied]:
        """Return all copies that the target has, in its order, decoded as the guide says: values, keys and headers are bytes again.

        A header `headrace-key` is the key. Markers of an encoding are not among the headers.
        """

    def kill(self) -> None:
        """End the server with SIGKILL."""
        self.server.kill()

    def start(self) -> None:
        """Start the server again."""
        self.server.start()

    def close(self) -> None:
        """Release all that this process holds."""
        self.source.close()


class ProxiedTarget(NamedTuple):
    """A target whose upstream reaches the server through a proxy."""

    target: DeadLetterTarget
    proxy: Proxy


def through_proxy(target: DeadLetterTarget) -> ProxiedTarget:
    """Return a target whose connection leads through a new proxy from now on."""
    proxy = Proxy(int(target.address.rpartition(":")[2]))
    target.set_address(proxy.address)
    return ProxiedTarget(target, proxy)


@asynccontextmanager
async def opened(upstream: Upstream) -> AsyncIterator[DeadLetterSender]:
    """Open a sender to the target of an upstream. Its close is quick, and leaves no task."""
    before = asyncio.all_tasks()
    sender = make_sender(upstream)
    try:
        yield sender
    finally:
        async with asyncio.timeout(CLOSE_SECONDS):
            await sender.aclose()
            while asyncio.all_tasks() - before - {asyncio.current_task()}:  # cancelled tasks end in the next turns of the loop
                await asyncio.sleep(0.01)


async def errors_of(sender: DeadLetterSender, copies: Sequence[DeadLetterCopy]) -> list[HeadraceError | None]:
    """Send copies, and return the result of each. An error of the whole call is that of each copy."""
    try:
        return list(await sender.send(copies))
    except HeadraceError as error:
        return [error] * len(copies)


def kinds(results: Sequence[HeadraceError | None]) -> list[type[HeadraceError] | None]:
    """Return the class of each result: `CopyRejected`, `StreamError` or `UpstreamError`."""
    return [result if result is None else next(one for one in KINDS if isinstance(result, one)) for result in results]


class DeadLetterTargetContract:
    """The tests that the sender passes with each kind of target. Subclass it in a test module as `Test…`, and override the fixtures.

    A subclass gives `target` on a shared server, and `killable` on a server that the test may kill. It overrides `proxied` if the address
    of a proxy alone does not lead all requests through it.
    """

    ordered: ClassVar[bool] = True
    """The target has copies of one lane in the order in which they were sent."""
    large_bytes: ClassVar[int | None] = None
    """The bytes of a copy that the target never takes, or None if the broker takes any that a test can send."""
    creates: ClassVar[bool] = False
    """The broker creates a target that is missing."""
    forgets: ClassVar[bool] = False
    """A killed server forgets what it confirmed."""
    limits: ClassVar[Mapping[str, float]] = {}
    """Constants below `headrace.sources` with short times, such as `{"dead_letters.kafka.METADATA_SECONDS": 2.0}`."""

    @pytest.fixture
    def target(self) -> Iterator[DeadLetterTarget]:
        """Return a target on a shared server."""
        raise NotImplementedError

    @pytest.fixture
    def killable(self) -> Iterator[DeadLetterTarget]:
        """Return a target on a server that the test may kill."""
        raise NotImplementedError

    @pytest.fixture
    def proxied(self, target: DeadLetterTarget) -> Iterator[ProxiedTarget]:
        """Return a target whose upstream reaches the server through a proxy."""
        proxied = through_proxy(target)
        yield proxied
        proxied.proxy.close()

    @pytest.fixture
    def short_limits(self) -> Iterator[pytest.MonkeyPatch]:
        """Shorten the limits of the sender until `undo`: a server that has just started may answer slowly."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.limits.items():
                patch.setattr(f"headrace.sources.{name}", value)
            yield patch

    def in_order(self, copies: Sequence[Copied]) -> list[Copied]:
        """Return copies in the order of their numbers if the target has no order."""
        return list(copies) if self.ordered else sorted(copies, key=lambda copy: copy.number)

    async def test_a_copy_has_the_bytes_the_key_and_the_headers_of_its_message_and_its_origin(self, target: DeadLetterTarget) -> None:
        headers = (("trace", b"t-1"), ("headrace-id", b"of an earlier copy"), ("none", None), ("tries", b"2"))
        metadata = MessageMetadata("k1", headers, 1_700_000_000_000, id="m-7")
        whole, bare = copy_of(7, b'{"n":7}', metadata, triggers=["paid", "sent"]), copy_of(8, lane=None, position=None)
        async with opened(target.upstream()) as sender:
            assert await sender.send([whole, bare]) == [None, None]
        first, second = self.in_order(await asyncio.to_thread(target.copies))
        assert (first.key, first.value) == (b"k1", b'{"n":7}')
        assert first.headers == {
            "trace": b"t-1",
            "tries": b"2",
            "headrace-id": b"letter-7",
            "headrace-number": b"7",
            "headrace-kind": b"malformed",
            "headrace-reason": b"not JSON",
            "headrace-attempts": b"1",
            "headrace-time": b"2026-11-24T01:02:03.000000Z",
            "headrace-stream": b"orders",
            "headrace-lane": b"orders/0",
            "headrace-position": b"7",
            "headrace-triggers": b'["paid","sent"]',
            "headrace-timestamp": b"1700000000000",
            "headrace-message-id": b"m-7",
        }
        assert (second.key, second.value) == (None, b"{")
        absent = {f"headrace-{name}" for name in ("lane", "position", "timestamp", "message-id", "decode")}
        assert not absent & second.headers.keys()

    async def test_bytes_that_are_not_text_come_back(self, target: DeadLetterTarget) -> None:
        metadata = MessageMetadata("k", tuple(ODD_VALUES.items()), malformed="not JSON")
        values = [bytes(range(256)), "é\u2028\x00\ufffe".encode(), b" ", b"null", "\U0001f600".encode()]
        copies = [copy_of(number, value, metadata) for number, value in enumerate(values)]
        async with opened(target.upstream()) as sender:
            assert await sender.send(copies) == [None] * len(values)
        read = self.in_order(await asyncio.to_thread(target.copies))
        assert [copy.value for copy in read] == values
        for copy in read:
            assert {name: copy.headers.get(name) for name in ODD_VALUES} == ODD_VALUES

    async def test_a_long_reason_and_many_triggers_are_cut_at_most(self, target: DeadLetterTarget) -> None:
        reason, triggers = "é" * 3_000, [f"trigger-{number}" for number in range(300)]
        async with opened(target.upstream()) as sender:
            assert await sender.send([copy_of(1, reason=reason, triggers=triggers)]) == [None]
        (copy,) = await asyncio.to_thread(target.copies)
        assert (copy.value, copy.number) == (b"{", 1)
        cut = (copy.headers["headrace-reason"] or b"").decode()
        assert len(cut) > 100
        assert reason.startswith(cut)
        names = json.loads(copy.headers["headrace-triggers"] or b"")
        assert names == triggers[: len(names)]
        assert names

    async def test_many_copies_of_one_call_come_in_order(self, target: DeadLetterTarget) -> None:
        copies = [copy_of(number, b'{"n":"%s"}' % (b"x" * (number * 37 % 5_000)), MessageMetadata("k")) for number in range(300)]
        async with opened(target.upstream()) as sender:
            assert await sender.send(copies) == [None] * 300
            assert await sender.send([copy_of(300, metadata=MessageMetadata("k"))]) == [None]
        read = self.in_order(await asyncio.to_thread(target.copies))
        assert [copy.number for copy in read] == [*range(301)]
        assert [copy.value for copy in read[:300]] == [copy.data for copy in copies]

    async def test_a_copy_that_is_too_large_is_rejected_and_the_others_of_the_call_are_taken(self, target: DeadLetterTarget) -> None:
        if self.large_bytes is None:
            pytest.skip("The broker takes each copy that a test can send.")
        copies = [copy_of(number, b"x" * (self.large_bytes if number == 3 else 900)) for number in range(8)]
        async with opened(target.upstream()) as sender:
            results = await sender.send(copies)
            assert kinds(results) == [CopyRejected if number == 3 else None for number in range(8)]
            assert await sender.send([copy_of(9)]) == [None], "the sender goes on"
        assert sorted(copy.number for copy in await asyncio.to_thread(target.copies)) == [0, 1, 2, 4, 5, 6, 7, 9]

    async def test_a_target_that_does_not_exist_is_an_error_and_is_not_created(self, target: DeadLetterTarget) -> None:
        if self.creates:
            pytest.skip("The broker creates the target.")
        async with opened(target.upstream_to_missing()) as sender:
            results = await errors_of(sender, [copy_of(1), copy_of(2)])
        for error in results:
            assert isinstance(error, UpstreamError)
            assert not isinstance(error, CopyRejected)
            assert error.hint is not None
        assert not await asyncio.to_thread(target.has_missing)

    @pytest.mark.usefixtures("short_limits")
    async def test_a_server_that_refuses_connections_is_an_error_in_bounded_time(self, target: DeadLetterTarget) -> None:
        target.set_address(f"127.0.0.1:{free_port()}")
        async with opened(target.upstream()) as sender, asyncio.timeout(ERROR_SECONDS):
            assert kinds(await errors_of(sender, [copy_of(1)])) == [StreamError]

    @pytest.mark.usefixtures("short_limits")
    async def test_a_server_that_is_silent_from_the_start_is_an_error_in_bounded_time(self, proxied: ProxiedTarget) -> None:
        proxied.proxy.silence()
        async with opened(proxied.target.upstream()) as sender, asyncio.timeout(ERROR_SECONDS):
            assert kinds(await errors_of(sender, [copy_of(1)])) == [StreamError]

    async def test_a_server_that_becomes_silent_is_an_error_in_bounded_time_and_gets_the_copies_later(
        self, proxied: ProxiedTarget, short_limits: pytest.MonkeyPatch
    ) -> None:
        async with opened(proxied.target.upstream()) as sender:
            assert await sender.send([copy_of(0)]) == [None]
            proxied.proxy.silence()
            async with asyncio.timeout(ERROR_SECONDS):
                assert kinds(await errors_of(sender, [copy_of(1), copy_of(2)])) == [StreamError] * 2
        proxied.proxy.calm()
        short_limits.undo()
        async with opened(proxied.target.upstream()) as sender:
            assert await sender.send([copy_of(1), copy_of(2)]) == [None] * 2
        assert {copy.number for copy in await asyncio.to_thread(proxied.target.copies)} == {0, 1, 2}

    async def test_a_cancelled_send_ends_at_once_and_leaves_nothing(self, proxied: ProxiedTarget) -> None:
        async with opened(proxied.target.upstream()) as sender:
            assert await sender.send([copy_of(0)]) == [None]
            passed = proxied.proxy.passed("to_server")
            proxied.proxy.silence("to_client")
            sending = asyncio.ensure_future(errors_of(sender, [copy_of(1)]))
            await until(lambda: proxied.proxy.passed("to_server") > passed)
            sending.cancel()
            await asyncio.wait([sending], timeout=CLOSE_SECONDS)
            assert sending.cancelled()
        proxied.proxy.calm()
        async with opened(proxied.target.upstream()) as sender:
            assert await sender.send([copy_of(2)]) == [None]
        assert {0, 2} <= {copy.number for copy in await asyncio.to_thread(proxied.target.copies)}

    async def test_a_sender_that_is_cancelled_while_it_connects_leaves_nothing(self, proxied: ProxiedTarget) -> None:
        accepted = proxied.proxy.accepted
        proxied.proxy.silence("to_client")
        async with opened(proxied.target.upstream()) as sender:
            sending = asyncio.ensure_future(errors_of(sender, [copy_of(1)]))
            await until(lambda: proxied.proxy.accepted > accepted)
            sending.cancel()
            await asyncio.wait([sending], timeout=CLOSE_SECONDS)
            assert sending.cancelled()
        proxied.proxy.calm()
        await until(lambda: proxied.proxy.open == 0)
        del sender

    async def test_a_closed_sender_has_no_connection(self, proxied: ProxiedTarget) -> None:
        async with opened(proxied.target.upstream()) as sender:
            assert await sender.send([copy_of(0)]) == [None]
            assert proxied.proxy.open > 0
        await until(lambda: proxied.proxy.open == 0)
        del sender  # until here, so that the collection of garbage closes nothing

    async def test_copies_to_a_killed_server_are_not_confirmed_and_come_after_its_start(
        self, killable: DeadLetterTarget, short_limits: pytest.MonkeyPatch
    ) -> None:
        async with opened(killable.upstream()) as sender:
            assert await sender.send([copy_of(0)]) == [None]
            await asyncio.to_thread(killable.kill)
            async with asyncio.timeout(ERROR_SECONDS):
                assert kinds(await errors_of(sender, [copy_of(1)])) == [StreamError]
        await asyncio.to_thread(killable.start)
        short_limits.undo()
        async with opened(killable.upstream()) as sender, asyncio.timeout(ERROR_SECONDS):
            while await errors_of(sender, [copy_of(1)]) != [None]:  # a server that has just started may not answer in time
                await asyncio.sleep(0.1)
        confirmed = [1] if self.forgets else [0, 1]
        copies = self.in_order(await asyncio.to_thread(killable.copies))
        assert list(dict.fromkeys(copy.number for copy in copies)) == confirmed  # a repeated copy may come twice


class DeadLetterSenderContract(DeadLetterTargetContract):
    """The tests of each broker: those of one kind of target, and one with real processes."""

    has_any_bytes: ClassVar[bool] = True
    """A message that the upstream reads may have bytes that are not text."""

    @pytest.fixture
    def deployment(self, tmp_path: Path) -> Iterator[Deployment]:
        """Return an api and a database."""
        with Deployment.with_short_leases(tmp_path / "deployment") as deployment:
            yield deployment

    @pytest.mark.timeout(300)
    def test_malformed_messages_that_real_processes_read_are_copied(self, deployment: Deployment, target: DeadLetterTarget) -> None:
        bad = [b'{"bad":%d}' % number for number in range(10)] + [b"not JSON %d" % number for number in range(10)]
        if self.has_any_bytes:
            bad[-1] = b"\xff\x00 not text"
        target.send([b'{"n":1}', *bad, b'{"n":2}'])
        classpath, arguments = target.upstream().serialize()
        deployment.share_connection(target.connection)
        deployment.triggerer(deployment.project(PROJECT.format(classpath=classpath, arguments=arguments)))
        count = "SELECT coalesce(sum(copied), 0), coalesce(sum(rejected), 0) FROM dead_letter_copies"
        until_sync(lambda: deployment.rows(count) == [(20, 0)], f"all copies are recorded, {deployment.folder}")
        copies = target.copies()
        assert sorted(copy.value or b"" for copy in copies) == sorted(bad)
        assert {_origin(copy) for copy in copies} == {*deployment.rows("SELECT id, number, kind FROM dead_letters")}
        until_sync(lambda: _listed(deployment)["dead_letter_target"] == target.description, "the reader has reported")
        status = _listed(deployment)
        assert (status["uncopied"], status["problems"]) == (0, [])


def _origin(copy: Copied) -> tuple[str, int, str]:
    return (copy.headers["headrace-id"] or b"").decode(), copy.number, (copy.headers["headrace-kind"] or b"").decode()


def _listed(deployment: Deployment) -> dict[str, Any]:
    (one,) = json.loads(deployment.cli("upstreams", "list", "--json").stdout)["upstreams"]
    return dict(one)
