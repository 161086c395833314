"""The identity of a subscriber set: triggers that owe answers together.

The digest of a subscriber set is the sum of its members' hashes. The digest of a similar set follows from the difference alone, whatever
the size of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

DIGEST_BYTES: Final = 16
EMPTY: Final = 0
"""The digest of the subscriber set without members."""

_MODULUS: Final = 1 << (8 * DIGEST_BYTES)


def subscriber_set_digest(joined: Iterable[int], departed: Iterable[int] = (), base: int = EMPTY) -> int:
    """Return the digest of the subscriber set `base` with the triggers `joined`, each once, and without those `departed`."""
    total = base
    for trigger_id in joined:
        total += _hash(trigger_id)
    for trigger_id in departed:
        total -= _hash(trigger_id)
    return total % _MODULUS


def digest_text(digest: int) -> str:
    """Return a digest as 32 hexadecimal digits."""
    return digest.to_bytes(DIGEST_BYTES, "big").hex()


def digest_of(text: str) -> int:
    """Return the digest that `digest_text` wrote. Raises `ValueError`."""
    return int.from_bytes(bytes.fromhex(text), "big")


def _hash(trigger_id: int) -> int:
    return int.from_bytes(blake2b(trigger_id.to_bytes(8, "big", signed=True), digest_size=DIGEST_BYTES).digest(), "big")
