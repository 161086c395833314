"""The world of `folder_faults`, with a reader in a process of its own, which is killed without warning."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace

from support.sources.folder_faults import World
from support.sources.kit import PATIENCE

READER = """
import asyncio, os, random, sys
from headrace.core.ledger.outcome import AdvanceItem, AdvanceOutcome
from headrace.errors import HeadraceError
from headrace.sources.directory import lane as directory_lane
from headrace.sources.directory import lanes as directory_lanes
from headrace.sources.directory.upstream import Directory

directory_lane.QUIET = directory_lanes.QUIET = 0.05
chance = random.Random(int(sys.argv[2]))

async def advance(producer, lanes):
    while True:
        await asyncio.sleep(chance.choice([0.0, 0.01, 0.05]))
        for lane, items in list(lanes.items()):
            count = chance.randrange(len(items) + 1)
            if count:
                await producer.advance([AdvanceItem(place, AdvanceOutcome(1, 0)) for _, place in items[:count]])
                if producer.get_committed(lane) is not None:
                    os.write(1, b"A " + b" ".join(data for data, _ in items[:count]) + b"\\n")
                del items[:count]

async def main():
    producer = Directory(sys.argv[1], "*.jsonl").producer()
    lanes = {}
    task = asyncio.create_task(advance(producer, lanes))
    async for raw, place in producer.open_stream():
        os.write(1, f"D {raw.position} {raw.data.decode()} {raw.lane}\\n".encode())
        lanes.setdefault(raw.lane, []).append((raw.data, place))

try:
    asyncio.run(main())
except HeadraceError:
    pass
"""


class KillingWorld(World):
    """A world whose reader dies by SIGKILL: between any two instructions of its, not between two steps of ours."""

    _process: asyncio.subprocess.Process | None = None
    _listening: asyncio.Task[None] | None = None

    async def finish(self) -> None:
        for path in list(self._open):
            self._close(path)
        async with asyncio.timeout(2 * PATIENCE):
            while self.oracle.missing:
                await self._start()
                await asyncio.sleep(0.02)
                if self._verdict is not None:
                    raise self._verdict
        await self.stop()

    async def advance(self) -> None:
        await self._start()
        await asyncio.sleep(self.chance.random() * 0.3)

    async def _start(self) -> None:
        if self._process is not None and self._process.returncode is None:
            return
        await self._leave()
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", READER, str(self.feed), str(self.chance.randrange(10**6))), stdout=asyncio.subprocess.PIPE
        )
        self._listening = asyncio.create_task(self._listen(self._process))

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            # What was being written when it was killed has no end.
            kind, _, rest = line.decode().rstrip("\n").partition(" ")
            if not line.endswith(b"\n") or kind not in ("A", "D") or self._verdict is not None:
                continue
            if kind == "A":
                self.oracle.advanced.update(map(int, rest.split()))
                continue
            position, data, lane = rest.split(" ", 2)
            try:
                self.oracle.deliver(SimpleNamespace(lane=lane, position=int(position), data=data))
            except AssertionError as verdict:
                self._verdict = verdict

    async def _leave(self) -> None:
        process, self._process = self._process, None
        if process is None or self._listening is None:
            return
        if process.returncode is None:
            process.kill()
        await process.wait()
        await self._listening
        self.oracle.crashes += 1
