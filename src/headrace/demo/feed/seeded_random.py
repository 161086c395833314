"""Random numbers that depend only on the seed and a name, on every machine and in every order of calls."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

_SPAN: Final = 2.0**64


class SeededRandom:
    """Random numbers by name. The numbers of one name do not depend on other calls."""

    def __init__(self, seed: int) -> None:
        self._key = str(seed).encode()

    def pair(self, purpose: str, name: str) -> tuple[float, float]:
        """Return two independent numbers in [0, 1) for this purpose and name."""
        digest = blake2b(f"{purpose}\0{name}".encode(), digest_size=16, key=self._key).digest()
        return int.from_bytes(digest[:8]) / _SPAN, int.from_bytes(digest[8:]) / _SPAN

    def number(self, purpose: str, name: str) -> float:
        """Return one number in [0, 1) for this purpose and name."""
        return self.pair(purpose, name)[0]
