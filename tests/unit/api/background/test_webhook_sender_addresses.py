"""A webhook connects only to public addresses, in any notation of its URL: the sender checks the address that it connects to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
from aiohttp import web

from headrace.api.background.webhook_sender import PRIVATE, Sender, is_public

SECRET = "whsec_c2VjcmV0cyBvZiB0ZXN0cyBhcmUgbG9uZyBlbm91Z2g="
EVENT = SimpleNamespace(seq=1, id="1", source="s", type="t", subject=None, occurred=0, received=0, follows=None, payload="{}", trace=None)


@pytest.fixture
async def server() -> AsyncIterator[tuple[int, list[str]]]:
    """A server on every loopback address, and the hosts that it was asked by."""
    reached: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        reached.append(request.host)
        return web.Response()

    runner = web.ServerRunner(web.Server(handler))  # type: ignore[arg-type]  # a request of a server without an application
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    yield port, reached
    await runner.cleanup()


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "①②⑦.0.0.1",
        "\uff11\uff12\uff17.0.0.1",
        "127。0。0。1",
        "127.1",
        "2130706433",
        "0177.0.0.1",
        "0x7f.1",
        "0.0.0.0",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "127.0.0.1.",
        "user:password@127.0.0.1",
        "%31%32%37.0.0.1",
    ],
)
async def test_a_private_address_is_not_reached_in_any_notation(host: str, server: tuple[int, list[str]]) -> None:
    port, reached = server
    async with Sender(private=False) as sender:
        answer = await sender.send(f"http://{host}:{port}/", SECRET, EVENT, None, 0, 5)
    assert not answer.taken
    assert reached == []
    if host in {"127.0.0.1", "localhost", "①②⑦.0.0.1"}:
        assert PRIVATE in (answer.error or "")


async def test_a_sender_can_allow_private_addresses(server: tuple[int, list[str]]) -> None:
    port, reached = server
    async with Sender(private=True) as sender:
        assert (await sender.send(f"http://127.0.0.1:{port}/", SECRET, EVENT, None, 0, 5)).taken
    assert reached == [f"127.0.0.1:{port}"]


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("64:ff9b::5db8:d822", True),
        ("10.0.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("2002:0a00:0001::1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b:1::a9fe:a9fe", False),
        ("::ffff:93.184.216.34", True),
        ("::127.0.0.1", False),
        ("::ffff:0:127.0.0.1", False),
        ("fec0::1", False),
        ("5f00::1", False),
        ("ff02::1", False),
        ("2001:db8::1", False),
    ],
)
def test_is_public_distinguishes_public_from_private_addresses(address: str, *, public: bool) -> None:
    assert is_public(address) is public
