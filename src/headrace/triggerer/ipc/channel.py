"""One end of the socket between two processes of a triggerer."""

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
    async def open(cls, end: socket.socket) -> Self:
        """Return a channel over one end of a socket pair. The channel owns the socket from now on."""
        return cls(*await asyncio.open_connection(sock=end, limit=_CHUNK))

    async def send(self, frame: Frame) -> None:
        """Send one frame. If the other side has closed, the frame is lost, and `receive` returns None."""
        if self._writer.is_closing():
            return
        self._writer.write(encode(frame))
        try:
            await self._writer.drain()
        except ConnectionError:
            self._writer.close()

    def post(self, frame: Frame) -> None:
        """Queue one frame without waiting. `queued` has the number of waiting bytes."""
        if not self._writer.is_closing():
            self._writer.write(encode(frame))

    @property
    def queued(self) -> int:
        """Number of bytes that the other side has not read."""
        return 0 if self._writer.is_closing() else self._writer.transport.get_write_buffer_size()

    async def wait_flushed(self) -> None:
        """Wait until the other side has read most of the queued bytes, or has closed."""
        try:
            await self._writer.drain()
        except ConnectionError:
            self._writer.close()

    async def receive(self) -> Frame | None:
        """Return the next frame, or None if the other side has closed."""
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
