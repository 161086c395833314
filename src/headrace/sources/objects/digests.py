"""A set of digests in little memory: about 20 bytes for each of a million. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from headrace.sources.objects.location import DIGEST_BYTES

_PART_BYTES: Final = 2
"""Digests with the same first bytes are in one text of bytes."""


class DigestSet:
    """Digests of DIGEST_BYTES bytes, packed in up to 65,536 texts. A set of Python would take 100 bytes for each."""

    def __init__(self, packed: bytes = b"") -> None:
        self._parts: dict[bytes, bytes] = {}
        self._count = 0
        self.add_packed(packed)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, digest: bytes) -> bool:
        part = self._parts.get(digest[:_PART_BYTES])
        if part is None:
            return False
        at = part.find(digest)
        while at >= 0 and at % DIGEST_BYTES:
            at = part.find(digest, at + 1)
        return at >= 0

    def add(self, digest: bytes) -> None:
        """Add a digest; do nothing if it is there."""
        if digest in self:
            return
        first = digest[:_PART_BYTES]
        self._parts[first] = self._parts.get(first, b"") + digest
        self._count += 1

    def add_packed(self, packed: bytes) -> None:
        """Add digests that follow each other."""
        for digest in split(packed):
            self.add(digest)

    def packed(self) -> bytes:
        """Return all digests, one after the other."""
        return b"".join(self._parts.values())

    def retain(self, others: DigestSet) -> Iterator[int]:
        """Remove what `others` does not have, in short steps. Each step returns how many digests it has removed."""
        for first in list(self._parts):
            retained = [digest for digest in split(self._parts[first]) if digest in others]
            removed = len(self._parts[first]) // DIGEST_BYTES - len(retained)
            if removed:
                self._count -= removed
                self._parts[first] = b"".join(retained)
            yield removed

    def count_missing(self, others: DigestSet) -> Iterator[int]:
        """Count what `others` does not have, in short steps, without a change."""
        for part in list(self._parts.values()):
            yield sum(digest not in others for digest in split(part))


def split(packed: bytes) -> Iterable[bytes]:
    """Return the digests that follow each other."""
    return (packed[at : at + DIGEST_BYTES] for at in range(0, len(packed), DIGEST_BYTES))
