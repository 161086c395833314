"""Tokens with which the API reads one log from the process that writes it. Both know the deployment key, which is never sent."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import jwt

_ALGORITHM: Final = "HS256"
_LIFETIME_SECONDS: Final = 60  # seconds


class ReadTokens:
    """Creates and verifies tokens under one deployment key."""

    def __init__(self, key: str) -> None:
        self._secret = sha256(b"headrace log pass:" + key.encode()).digest()

    def create(self, path: str, now: float) -> str:
        """Return a token for `path` that expires a minute after `now` (seconds since 1970)."""
        return jwt.encode({"sub": path, "exp": int(now) + _LIFETIME_SECONDS}, self._secret, _ALGORITHM)

    def verify(self, token: str, path: str) -> bool:
        """Return whether `token` is a valid token for `path`."""
        try:
            claims = jwt.decode(token, self._secret, [_ALGORITHM], options={"require": ["sub", "exp"]})
        except jwt.InvalidTokenError:
            return False
        return bool(claims["sub"] == path)
