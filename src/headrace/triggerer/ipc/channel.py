"""One end of the socket between supervisor and runner."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Self

from headrace.triggerer.ipc.messages import Decoder, Frame, encode

_CHUNK = 256 * 1024


class Channel:
    """Sends and receives frames, in order. A sender waits while the other side does not read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = Decoder()
        self._received: deque[Frame] = deque()

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """Return the link over one end of a socket pair, which it owns from now on."""
        return cls(*await asyncio.open_connection(sock=end, limit=_CHUNK))

    async def send(self, frame: Frame) -> None:
        """Send one frame; what is sent after the other side is gone is lost, and `receive` tells."""
        if self._writer.is_closing():
            return
        self._writer.write(encode(frame))
        try:
            await self._writer.drain()
        except ConnectionError:
            self._writer.close()

    def post(self, frame: Frame) -> None:
        """Queue one frame without waiting; `queued` says how much is."""
        if not self._writer.is_closing():
            self._writer.write(encode(frame))

    @property
    def queued(self) -> int:
        """How many bytes the other side has not taken."""
        return 0 if self._writer.is_closing() else self._writer.transport.get_write_buffer_size()

    async def flushed(self) -> None:
        """Wait until the other side has taken most of what was posted, or is gone."""
        try:
            await self._writer.drain()
        except ConnectionError:
            self._writer.close()

    async def receive(self) -> Frame | None:
        """Return the next frame, or None if the other side is gone."""
        while not self._received:
            try:
                data = await self._reader.read(_CHUNK)
            except ConnectionError:
                return None
            if not data:
                return None
            self._received.extend(self._decoder.feed(data))
        return self._received.popleft()

    def close(self) -> None:
        """Close this end."""
        self._writer.close()
