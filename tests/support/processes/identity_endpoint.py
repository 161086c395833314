"""The endpoint of a managed identity on loopback, as Azure App Service has it: tokens for the secret of the machine."""

from __future__ import annotations

import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import jwt

ISSUER = "https://sts.windows.net/ab1f708d-50f6-404c-a006-d71b2ac7a606/"


class IdentityEndpoint:
    """Issues tokens for Azure Storage. `lifetime_seconds` and `status` may change. `issued` has the clients of all tokens."""

    def __init__(self) -> None:
        self.lifetime_seconds = 3_600.0
        self.status = 200
        self.issued: list[str | None] = []
        self.secret = secrets.token_hex(12)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/msi/token"
        threading.Thread(target=self._server.serve_forever, name="identity endpoint", daemon=True).start()

    def close(self) -> None:
        """Stop to answer."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a machine that has the identity."""
        return {"IDENTITY_ENDPOINT": self.url, "IDENTITY_HEADER": self.secret}

    def _token(self) -> tuple[str, int]:
        now = time.time()
        expires = int(now + self.lifetime_seconds)
        claims = {"aud": "https://storage.azure.com", "iss": ISSUER, "iat": int(now), "nbf": int(now) - 1, "exp": expires}
        return jwt.encode(claims | {"jti": secrets.token_hex(8)}, "a secret of the issuer that nobody checks", algorithm="HS256"), expires

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)
                status, body = endpoint.status, {"error": "unavailable"}
                if self.headers.get("X-IDENTITY-HEADER") != endpoint.secret or query.get("resource") != ["https://storage.azure.com"]:
                    status = 400
                elif status == 200:
                    token, expires = endpoint._token()
                    endpoint.issued.append(query.get("client_id", [None])[0])
                    body = {"access_token": token, "expires_on": str(expires), "resource": query["resource"][0], "token_type": "Bearer"}
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *arguments: object) -> None:
                del format, arguments

        return Handler
