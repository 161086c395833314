"""A token endpoint of OAuth 2.0 on loopback: client credentials for signed JSON Web Tokens."""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

KEY_ID = "test"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing: a client that does not trust the certificate closes the connection."""


class TokenEndpoint:
    """Gives tokens to one client. `certificate` is a PEM file with a certificate and a key: with it, the endpoint has TLS.

    It has the key and the client of `like`, or its own.
    `issued` are the tokens. `lifetime_seconds`, `is_trusted` and `client_secret` may change while it runs.
    """

    def __init__(self, certificate: Path | None = None, *, like: TokenEndpoint | None = None) -> None:
        self.client = "headrace-test"
        self.client_secret: str = f"secret-{secrets.token_hex(12)}" if like is None else like.client_secret
        self.lifetime_seconds = 3_600.0
        self.is_trusted = True
        self.issued: list[str] = []
        self._key: rsa.RSAPrivateKey = rsa.generate_private_key(public_exponent=65537, key_size=2048) if like is None else like._key
        self._other_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._server = _Server(("127.0.0.1", 0), self._handler())
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}/token"
        threading.Thread(target=self._server.serve_forever, name="token endpoint", daemon=True).start()

    def write_keys(self, file: Path) -> None:
        """Write the public key as a JSON Web Key Set."""
        key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key()))
        file.write_text(json.dumps({"keys": [key | {"kid": KEY_ID, "use": "sig", "alg": "RS256"}]}))

    def close(self) -> None:
        """Stop to answer."""
        self._server.shutdown()
        self._server.server_close()

    def token(self) -> str:
        """Return a new token."""
        now = time.time()
        claims = {"sub": self.client, "iss": "test", "aud": "kafka", "iat": int(now), "exp": int(now + self.lifetime_seconds)}
        key = self._key if self.is_trusted else self._other_key
        token = jwt.encode(claims | {"jti": secrets.token_hex(8)}, key, algorithm="RS256", headers={"kid": KEY_ID})
        self.issued.append(token)
        return token

    def answer(self, authorization: str) -> tuple[int, dict[str, Any]]:
        """Return the status and body of the answer to a request."""
        given = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if (unquote(given[0]), unquote(given[2])) != (self.client, self.client_secret):
            return 401, {"error": "invalid_client", "error_description": "The client is unknown or its secret is wrong"}
        return 200, {"access_token": self.token(), "token_type": "Bearer", "expires_in": int(self.lifetime_seconds)}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, body = endpoint.answer(self.headers.get("Authorization", ""))
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *arguments: Any) -> None:
                del format, arguments

        return Handler
