"""Brokers that are killed with SIGKILL in an advance: before its request has arrived, and after the broker has taken it.

The next reader gets all messages of which no advance was requested, and no position goes back inside one stream. If a broker keeps what it
has confirmed, nothing is delivered after its advance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from headrace.sources.objects.gcs import client as gcs_client
from support.processes.proxy import Direction
from support.sources.killed import KILLABLE, proxied_killable
from support.sources.proxied import SHORT, Advance, Proxied, begin_in_silence
from support.sources.reading import numbers, until
from support.sources.resumed_reading import resumed_reading

pytestmark = [pytest.mark.brokers, pytest.mark.slow]

GROUPS = {"kafka": "network-kafka", "s3": "network-objects", "gs": "network-objects"}
AGAIN = "is delivered after its advance"


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.xdist_group(GROUPS.get(name, f"network-{name}"))) for name in KILLABLE])
def killable(request: pytest.FixtureRequest) -> str:
    """Return the name of each broker that may be killed."""
    return str(request.param)


@pytest.fixture
def proxied(killable: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxied]:
    """Return an upstream of the broker."""
    for name, value in SHORT.get(KILLABLE[killable].upstream, {}).items():
        monkeypatch.setattr(f"headrace.sources.{name}", value)
    monkeypatch.setattr(gcs_client, "WRITE_INTERVAL_SECONDS", 0.0)
    proxied = proxied_killable(killable)
    yield proxied
    proxied.proxy.calm()
    proxied.close()


@pytest.mark.parametrize("lost", ["to_server", "to_client"])
async def test_a_broker_killed_in_an_advance_delivers_the_others_again(killable: str, proxied: Proxied, lost: Direction) -> None:
    is_advancing = asyncio.Event()

    async def disturb(advance: Advance) -> None:
        running = await begin_in_silence(proxied.proxy, lost, advance)
        is_advancing.set()
        await running

    async with resumed_reading(proxied.upstream) as first:
        first.is_storing.clear()
        await asyncio.to_thread(proxied.send, numbers(0, 40))
        await until(lambda: len(set(first.delivered)) == 40)
        first.disturb_advance, first.pause_at = disturb, 20
        first.is_storing.set()
        await until(is_advancing.is_set)
        await asyncio.to_thread(proxied.server.kill)
        proxied.proxy.reset()
        proxied.proxy.speak()
        await asyncio.to_thread(proxied.server.start)
    async with resumed_reading(proxied.upstream) as second:
        await asyncio.to_thread(proxied.send, numbers(40, 60))
        missing = set(range(60)) - first.requested
        assert len(missing) >= 20
        await until(lambda: missing <= set(second.stored))
    forgets = KILLABLE[killable].forgets
    assert forgets or first.advanced.isdisjoint(second.delivered)
    assert not [fault for fault in first.faults + second.faults if not (forgets and AGAIN in fault)]
