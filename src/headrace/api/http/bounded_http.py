"""uvicorn's HTTP with a limit on headers."""

from __future__ import annotations

from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEADER_BYTES: Final = 32 * 1024
TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class BoundedHttp(HttpToolsProtocol):
    """HTTP with a limit on headers: httptools itself would buffer them until memory is exhausted."""

    _read: int | None = None

    def data_received(self, data: bytes) -> None:
        """Process received data; close the connection if the headers exceed the limit."""
        begun = self._read is not None  # bytes after the end of the previous body are not counted
        super().data_received(data)
        if begun and self._read is not None:
            self._read += len(data)
            if self._read > MAX_HEADER_BYTES and not self.transport.is_closing():
                self.transport.write(TOO_LONG)
                self.transport.close()

    def on_message_begin(self) -> None:
        """Start the count."""
        super().on_message_begin()
        self._read = 0

    def on_headers_complete(self) -> None:
        """Stop the count: the app limits bodies."""
        self._read = None
        super().on_headers_complete()
