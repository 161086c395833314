"""A TCP proxy on loopback that a test disturbs: it delays, is silent, resets and refuses connections. It knows nothing but bytes."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Literal

CHUNK: Final = 65_536
HOST: Final = "127.0.0.1"
LINGER_RESET: Final = struct.pack("ii", 1, 0)
"""Of SO_LINGER: a socket that is closed sends RST, and drops what it has not sent."""
SECONDS: Final = 30.0

Direction = Literal["both", "to_server", "to_client"]


class _Way:
    """One direction of all connections. While it is closed, bytes and ends of connections stay in the proxy."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.chunks = 0


class Proxy:
    """Passes on to the port `target` what arrives at `port`, which stays the same. It serves in a thread of its own until `close`.

    Its methods may be called from any thread. Each returns when the new state holds.
    """

    def __init__(self, target: int = 0) -> None:
        self.target = target
        self._holder = _bound(0)  # it never listens, so that connections are refused while no other socket does, and the port stays ours
        self.port = int(self._holder.getsockname()[1])
        self.address = f"{HOST}:{self.port}"
        self.accepted = 0
        """The number of all connections so far."""
        self._delay = 0.0
        self._ways = {"to_server": _Way(), "to_client": _Way()}
        self._connections: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._frozen: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy of a test", daemon=True)
        self._thread.start()
        self._run(self._accept())

    @property
    def open(self) -> int:
        """The number of connections that neither side has closed."""
        return len(self._connections)

    def passed(self, direction: Literal["to_server", "to_client"]) -> int:
        """Return the number of chunks that were passed on in a direction."""
        return self._ways[direction].chunks

    def delay(self, seconds: float) -> None:
        """Delay each chunk. The order of chunks stays."""
        self._delay = seconds

    def silence(self, direction: Direction = "both") -> None:
        """Pass on nothing in a direction: no bytes, no end. Connections stay open, and new ones are accepted."""
        self._call(lambda: self._set_silent(set(self._ways) if direction == "both" else {direction}))

    def speak(self) -> None:
        """End the silence. What was sent meanwhile is passed on, also on connections that the client has given up."""
        self._call(lambda: self._set_silent(set()))

    def freeze(self) -> None:
        """Make all present connections silent for good, as a router that forgets them. Others pass."""
        self._call(self._freeze)

    def reset(self) -> None:
        """Reset all open connections, at both ends. What was not passed on is lost."""
        self._call(self._reset)

    def refuse(self) -> None:
        """Refuse new connections, and reset the open ones."""
        self._run(self._refuse())

    def calm(self) -> None:
        """End every disturbance, but leave frozen connections silent."""
        self._delay = 0.0
        self.speak()
        self._run(self._accept())

    def close(self) -> None:
        """Reset all connections, and end the thread."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()
        self._holder.close()

    def _call(self, change: Callable[[], object]) -> None:
        """Run a change in the loop of the proxy, and wait for it."""

        async def run() -> None:
            change()

        self._run(run())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    async def _accept(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._connected, sock=_bound(self.port), limit=CHUNK)

    async def _refuse(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self._reset()

    async def _close(self) -> None:
        await self._refuse()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _set_silent(self, directions: set[str]) -> None:
        for name, way in self._ways.items():
            if name in directions:
                way.is_open.clear()
            else:
                way.is_open.set()

    def _freeze(self) -> None:
        for task, writers in self._connections.items():
            self._frozen += writers
            writers.clear()
            task.cancel()

    def _reset(self) -> None:
        for task, writers in self._connections.items():
            task.cancel()
            self._frozen += writers
        for writer in self._frozen:
            _abort(writer)
        self._frozen.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.accepted += 1
        writers = self._connections[task] = [writer]
        end: Callable[[asyncio.StreamWriter], None] = _abort
        try:
            if await self._pass_on(reader, writer, writers):
                end = asyncio.StreamWriter.close
        except asyncio.CancelledError:
            pass  # it is reset or frozen
        finally:
            del self._connections[task]
            for one in writers:
                end(one)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, writers: list[asyncio.StreamWriter]) -> bool:
        """Pass on both directions of a connection. Return whether both have ended without an error."""
        has_failed = False
        try:
            await self._ways["to_server"].is_open.wait()
            far_reader, far_writer = await asyncio.open_connection(HOST, self.target, limit=CHUNK)
            writers.append(far_writer)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, far_writer, self._ways["to_server"]))
                pumps.create_task(self._pump(far_reader, writer, self._ways["to_client"]))
        except* OSError:  # a connection that breaks is what this is about
            has_failed = True
        return not has_failed

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: _Way) -> None:
        """Pass on bytes, then the end."""
        while data := await reader.read(CHUNK):
            if self._delay:
                await asyncio.sleep(self._delay)
            await way.is_open.wait()
            writer.write(data)
            way.chunks += 1
            await writer.drain()
        await way.is_open.wait()
        writer.write_eof()


def _bound(port: int) -> socket.socket:
    """Return a socket that is bound beside others to a port of the loopback."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind((HOST, port))
    return bound


def _abort(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST."""
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
    writer.transport.abort()
