"""Credentials that are replaced at the server while a stream is open: a rotated password, an expired token, a revoked signature.

What holds for all brokers: the stream ends with an error that names its connection and what to do, and shows no secret. It opens again once
the connection has the new secret. No message is lost, and none is delivered after its advance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from headrace.testing.contract.reading import reading
from support.sources.reading import numbers, take_to, until
from support.sources.resumed_reading import ResumedReading, resumed_reading
from support.sources.rotated import GROUPS, ROTATED, Rotated

pytestmark = [pytest.mark.brokers, pytest.mark.slow]


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.xdist_group(GROUPS.get(name, name))) for name in ROTATED])
def rotated(request: pytest.FixtureRequest) -> Iterator[Rotated]:
    """Return an upstream of each broker, with the first secret in its connection."""
    rotated = ROTATED[request.param]()
    rotated.set_secret(0)
    yield rotated
    rotated.set_secret(1)
    rotated.close()


async def send(rotated: Rotated, first: int, last: int) -> None:
    """Send the messages with these numbers, which needs no secret."""
    await asyncio.to_thread(rotated.send, numbers(first, last))


def rejections(rotated: Rotated, run: ResumedReading) -> list[str]:
    """Return the errors that say what to do about the credentials."""
    return [end for end in run.ends if rotated.hint in end]


@pytest.mark.parametrize("held", [0, 20])
async def test_credentials_that_are_replaced_while_messages_are_held(rotated: Rotated, held: int) -> None:
    async with resumed_reading(rotated.upstream) as run:
        await send(rotated, 0, 20)
        await run.advanced_up_to(20)
        run.is_storing.clear()
        if held:
            await send(rotated, 20, 20 + held)
            await until(lambda: len(set(run.delivered)) == 20 + held)
        await asyncio.to_thread(rotated.rotate)
        await send(rotated, 40, 60)
        run.is_storing.set()
        await until(lambda: len(rejections(rotated, run)) > 1)
        for end in rejections(rotated, run):
            assert end.endswith(f"The connection is {rotated.connection!r}.")
        rotated.set_secret(1)
        await run.stored_up_to(40 + held)
        assert not [secret for end in run.ends for secret in rotated.secrets if secret in end]
    assert not run.faults, run.faults[:5]
    expected = [*range(20 + held), *range(40, 60)]
    assert (list(dict.fromkeys(run.stored)) if rotated.ordered else sorted(set(run.stored))) == expected
    await send(rotated, 60, 61)
    async with reading(rotated.upstream.producer()) as stream:
        assert run.advanced.isdisjoint(await take_to(stream, 60))
