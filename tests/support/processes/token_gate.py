"""The check of session tokens that AWS makes before a service, for a server of the protocol that checks no credentials."""

from __future__ import annotations

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.processes.broker_server import SECONDS

EXPIRED = {
    "__type": "com.amazon.coral.service#ExpiredTokenException",
    "message": "The security token included in the request is expired",
}


class TokenGate:
    """Passes on requests that have the session token `valid`, which may change. It answers others as AWS does: the token has expired."""

    def __init__(self, target: str, valid: str) -> None:
        self.target = target
        self.valid = valid
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, name="token gate", daemon=True).start()

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
                status, kind, answer = 403, "application/x-amz-json-1.0", json.dumps(EXPIRED).encode()
                if self.headers.get("X-Amz-Security-Token") == gate.valid:
                    connection = http.client.HTTPConnection(gate.target, timeout=SECONDS)
                    connection.request("POST", self.path, body, dict(self.headers))
                    passed = connection.getresponse()
                    status, kind, answer = passed.status, passed.headers["Content-Type"], passed.read()
                    connection.close()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *arguments: object) -> None:
                del format, arguments

        return Handler
