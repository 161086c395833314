"""The check of session tokens that AWS makes before a service, for a server of the protocol that checks no credentials."""

from __future__ import annotations

import json
from collections.abc import Mapping

from support.processes.http_gate import GateAnswer, HttpGate

EXPIRED = {
    "__type": "com.amazon.coral.service#ExpiredTokenException",
    "message": "The security token included in the request is expired",
}


class TokenGate(HttpGate):
    """Passes on requests that have the session token `valid`, which may change. It answers others as AWS does: the token has expired."""

    def __init__(self, target: str, valid: str) -> None:
        self.valid = valid
        super().__init__(target)

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> GateAnswer:
        if headers.get("X-Amz-Security-Token") == self.valid:
            return self.pass_on(path, headers, body)
        return GateAnswer(403, "application/x-amz-json-1.0", json.dumps(EXPIRED).encode())
