"""Passes: what lets the api read one log from the process that writes it. Both know the deployment key; it is never sent."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import jwt

_ALGORITHM: Final = "HS256"
_LIFE: Final = 60  # seconds


class ReadTokens:
    """Makes and checks passes for one deployment key."""

    def __init__(self, key: str) -> None:
        self._secret = sha256(b"headrace log pass:" + key.encode()).digest()

    def make(self, path: str, now: float) -> str:
        """Return a pass to `path`, good for a minute from `now` (seconds since 1970)."""
        return jwt.encode({"sub": path, "exp": int(now) + _LIFE}, self._secret, _ALGORITHM)

    def opens(self, given: str, path: str) -> bool:
        """Whether `given` is a pass to `path` that is still good."""
        try:
            claims = jwt.decode(given, self._secret, [_ALGORITHM], options={"require": ["sub", "exp"]})
        except jwt.InvalidTokenError:
            return False
        return bool(claims["sub"] == path)
