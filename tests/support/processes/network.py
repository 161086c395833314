"""The network between a process and the api, which can be cut: a proxy on loopback that knows nothing but bytes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Final

CHUNK: Final = 65_536
CALM: Final = ""
WORST_DELAY: Final = 3.0  # seconds


class Network:
    """Passes bytes on to a port of the loopback, as `mode` has it; which of its moods is whose turn follows from the seed.

    "drop": what is sent does not arrive. "lose": it arrives, and the answer does not. "delay": the answer comes late. "mixed": any of it.
    A connection of which something was lost is silent for good, and is reset after a while: after `silent` seconds, where they are given.
    """

    def __init__(self, port: int, seed: int, silent: float | None = None) -> None:
        self._target = port
        self._chance = random.Random(seed)
        self._silent = silent
        self.mode = CALM
        self.did: Counter[str] = Counter()
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Give the url of the api behind it."""
        listening = Event()
        thread = Thread(target=self._loop.run_until_complete, args=(self._serve(listening),), daemon=True)
        thread.start()
        assert listening.wait(30)
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            self._loop.call_soon_threadsafe(self._over.set)
            thread.join(30)
            self._loop.close()

    async def _serve(self, listening: Event) -> None:
        tasks: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._connection(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        listening.set()
        await self._over.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):  # a connection that breaks is what this is about
                there, back = await asyncio.open_connection("127.0.0.1", self._target)
                try:
                    await self._both_ways(reader, writer, there, back)
                finally:
                    back.transport.abort()
        finally:
            writer.transport.abort()

    async def _both_ways(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, there: asyncio.StreamReader, back: asyncio.StreamWriter
    ) -> None:
        lost = asyncio.Event()
        ways = {
            self._loop.create_task(self._pass_on(reader, back, "drop", lost)),
            self._loop.create_task(self._pass_on(there, writer, "lose", lost)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, loses: str, lost: asyncio.Event) -> None:
        """Pass bytes on until there are no more, or some of them were lost."""
        while data := await source.read(CHUNK):
            mood = self._mood()
            if mood == loses or (mood == "drop" and loses == "lose"):
                self.did[mood] += 1
                lost.set()
                await asyncio.sleep(self._chance.uniform(0, 2 * WORST_DELAY) if self._silent is None else self._silent)
                return
            if mood == "delay":
                self.did[mood] += 1
                await asyncio.sleep(self._chance.uniform(0, WORST_DELAY))
            target.write(data)
            await target.drain()
        if lost.is_set():
            await asyncio.Event().wait()  # the end of the connection is lost too; the other way is reset, and cancels this

    def _mood(self) -> str:
        return self._chance.choice(["drop", "lose", "delay", CALM]) if self.mode == "mixed" else self.mode
