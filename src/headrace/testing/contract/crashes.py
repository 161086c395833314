"""The part of the contract for durable brokers: the result of an advance when the reading process is killed."""

from __future__ import annotations

import random
import sys

from headrace.testing.contract.broker import Broker
from headrace.testing.contract.case import contract_case
from headrace.testing.contract.reader_process import WAITING, kill_reader
from headrace.testing.contract.reading import reading


class CrashContract:
    """Readers in processes of their own, killed with SIGKILL."""

    @contract_case("durable", "redelivery")
    async def test_a_killed_reader_has_advanced_what_it_reported_and_nothing_else(self, broker: Broker) -> None:
        broker.send("a", [b'{"n":%d}' % number for number in range(5_000)])
        assert await kill_reader(broker.upstream(), stop=2_000, size=300, kill_at=WAITING) == 1_799
        async with reading(broker.upstream().producer()) as stream:
            items = await stream.take(3_200)
        assert [raw.value["n"] for raw, _ in items] == list(range(1_800, 5_000))

    @contract_case("durable", "redelivery")
    async def test_readers_killed_at_random_moments_lose_nothing_and_repeat_nothing_advanced(self, broker: Broker) -> None:
        seed = random.getrandbits(32)
        sys.stdout.write(f"seed of the kills: {seed}\n")
        generator = random.Random(seed)  # noqa: S311
        total = 6_000
        broker.send("a", [b'{"n":%d}' % number for number in range(total)])
        done = -1
        for _ in range(3):
            size = generator.randrange(1, 9)
            advances = generator.randrange(1, 60)
            done = max(done, await kill_reader(broker.upstream(), stop=total, size=size, kill_at=str(done + size * advances)))
            async with reading(broker.upstream().producer()) as stream:
                first = (await stream.take(1))[0][0].value["n"]
            # The last advance may have been durable before the reader could print it.
            assert done + 1 <= first <= done + 1 + size
            done = first - 1
        async with reading(broker.upstream().producer()) as stream:
            items = await stream.take(total - done - 1)
        assert [raw.value["n"] for raw, _ in items] == list(range(done + 1, total))
