"""A gate before an HTTP server of a test: it passes requests on, and changes some of them or their answers."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from support.processes.broker_server import SECONDS


class GateAnswer(NamedTuple):
    """An answer to a client: its status, its content type and its body."""

    status: int
    kind: str
    body: bytes


class HttpGate:
    """Passes on the POST requests that arrive at `address` to the server `target`. A subclass overrides `answer`."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, name="gate of a test", daemon=True).start()

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> GateAnswer:
        """Return the answer to a request. A thread of the gate calls it."""
        return self.pass_on(path, headers, body)

    def pass_on(self, path: str, headers: Mapping[str, str], body: bytes) -> GateAnswer:
        """Return the answer of the server."""
        connection = http.client.HTTPConnection(self.target, timeout=SECONDS)
        try:
            connection.request("POST", path, body, dict(headers) | {"Content-Length": str(len(body))})
            passed = connection.getresponse()
            return GateAnswer(passed.status, passed.headers["Content-Type"], passed.read())
        finally:
            connection.close()

    def close(self) -> None:
        """Stop to answer."""
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                answer = gate.answer(self.path, dict(self.headers), body)
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.kind)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, format: str, *arguments: object) -> None:
                del format, arguments

        return Handler
