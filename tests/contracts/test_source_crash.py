"""The part of the source contract for far sides that outlive a process: what is kept when the process that reads is killed."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.triggers.upstream import Upstream
from support.sources.brokers import BROKERS, Broker
from support.sources.kit import PATIENCE, reading

READER = """
import asyncio, json, sys
from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.triggers.upstream import load_upstream

async def main():
    producer = load_upstream(sys.argv[1], json.loads(sys.argv[2])).producer()
    stop, size, batch = int(sys.argv[3]), int(sys.argv[4]), []
    async for raw, payload in producer.open_stream():
        if raw.value["n"] >= stop:
            print("waiting", flush=True)
            await asyncio.Event().wait()
        batch.append(AdvanceItem(payload, AdvanceOutcome(1, 0)))
        if len(batch) == size:
            await producer.advance(batch)
            print(raw.value["n"], flush=True)
            batch = []

asyncio.run(main())
"""


@pytest.fixture(params=[kind for kind in BROKERS if kind.durable], ids=lambda kind: kind.__name__)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    made: Broker = request.param(tmp_path)
    yield made
    made.close()


async def killed(upstream: Upstream, *, stop: int, size: int, kill_at: str) -> int:
    """Run a reader in a process of its own, which advances `size` by `size` before the message `stop`; kill it once it says `kill_at`.

    Return the last number it said it had advanced, or -1.
    """
    classpath, kwargs = upstream.serialize()
    arguments = (classpath, json.dumps(kwargs), str(stop), str(size))
    reader = await asyncio.create_subprocess_exec(sys.executable, "-c", READER, *arguments, stdout=asyncio.subprocess.PIPE)
    assert reader.stdout is not None
    said: list[str] = []
    async with asyncio.timeout(PATIENCE):
        while kill_at not in said:
            line = await reader.stdout.readline()
            assert line, "the reader ended by itself"
            said.append(line.decode().strip())
        reader.kill()
        said += (await reader.stdout.read()).decode().split()
        await reader.wait()
    return max((int(word) for word in said if word != "waiting"), default=-1)


async def test_a_reader_that_is_killed_has_kept_what_it_advanced_and_nothing_else(broker: Broker) -> None:
    broker.put("a", [b'{"n":%d}' % number for number in range(5_000)])
    assert await killed(broker.upstream(), stop=2_000, size=300, kill_at="waiting") == 1_799
    async with reading(broker.upstream().producer()) as held:
        items = await held.take(3_200)
    assert [raw.value["n"] for raw, _ in items] == list(range(1_800, 5_000))


async def test_readers_killed_at_any_moment_lose_nothing_and_repeat_nothing_they_advanced(broker: Broker) -> None:
    chance = random.Random(random.getrandbits(32))
    total = 6_000
    broker.put("a", [b'{"n":%d}' % number for number in range(total)])
    done = -1
    for _ in range(3):
        size = chance.randrange(1, 9)
        advances = chance.randrange(1, 60)
        done = max(done, await killed(broker.upstream(), stop=total, size=size, kill_at=str(done + size * advances)))
        async with reading(broker.upstream().producer()) as held:
            first = (await held.take(1))[0][0].value["n"]
        # The last advance may have been durable before the reader could say so.
        assert done + 1 <= first <= done + 1 + size
        done = first - 1
    async with reading(broker.upstream().producer()) as held:
        items = await held.take(total - done - 1)
    assert [raw.value["n"] for raw, _ in items] == list(range(done + 1, total))
