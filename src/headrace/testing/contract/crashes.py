"""The part of the contract for durable brokers: the result of an advance when the reading process is killed."""

from __future__ import annotations

import random
import sys

from headrace.testing.contract.broker import Broker
from headrace.testing.contract.case import contract_case
from headrace.testing.contract.reader_process import WAITING, kill_reader
from headrace.testing.contract.reading import reading, texts


class CrashContract:
    """Readers in processes of their own, killed with SIGKILL."""

    @contract_case("durable", "redelivery")
    async def test_messages_that_a_killed_reader_held_are_delivered_to_the_next(self, broker: Broker) -> None:
        sent = [b'{"n":%d}' % number for number in range(200)]
        broker.send("a", sent)
        assert await kill_reader(broker.upstream(), stop=0, size=1, kill_at=WAITING) == -1
        async with reading(broker.upstream().producer()) as stream:
            assert texts(broker, await stream.take_advancing(broker, 200)) == sent

    @contract_case("durable", "ordered", "redelivery")
    async def test_a_killed_reader_has_advanced_what_it_reported_and_nothing_else(self, broker: Broker) -> None:
        total = 5_000 if broker.unbounded else 500
        broker.send("a", [b'{"n":%d}' % number for number in range(total)])
        stop, size = total * 2 // 5, broker.bounded(300)
        first = stop // size * size
        assert await kill_reader(broker.upstream(), stop=stop, size=size, kill_at=WAITING) == first - 1
        async with reading(broker.upstream().producer()) as stream:
            items = await stream.take_advancing(broker, total - first)
        assert [raw.value["n"] for raw, _ in items] == list(range(first, total))

    @contract_case("durable", "ordered", "redelivery")
    async def test_readers_killed_at_random_moments_lose_nothing_and_repeat_nothing_advanced(self, broker: Broker) -> None:
        seed = random.getrandbits(32)
        sys.stdout.write(f"seed of the kills: {seed}\n")
        generator = random.Random(seed)  # noqa: S311
        # A broker that delivers few messages at once delivers no more before the rest of them is advanced: sizes divide their number.
        sizes = range(1, 9) if broker.unbounded else (1, 2, 5)
        total = 6_000 if broker.unbounded else 500
        broker.send("a", [b'{"n":%d}' % number for number in range(total)])
        done = -1
        for _ in range(3):
            size = generator.choice(sizes)
            advances = generator.randrange(1, 60 if broker.unbounded else 20)
            done = max(done, await kill_reader(broker.upstream(), stop=total, size=size, kill_at=str(done + size * advances)))
            async with reading(broker.upstream().producer()) as stream:
                first = (await stream.take(1))[0][0].value["n"]
            # The last advance may have been durable before the reader could print it.
            assert done + 1 <= first <= done + 1 + size
            done = first - 1
        async with reading(broker.upstream().producer()) as stream:
            items = await stream.take_advancing(broker, total - done - 1)
        assert [raw.value["n"] for raw, _ in items] == list(range(done + 1, total))
