"""Which object one is, and which objects of a bucket are read. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Final, NamedTuple

DIGEST_BYTES: Final = 16
STATE_FOLDER: Final = ".headrace"
"""The folder of states. Its objects are never read."""


class StoredObject(NamedTuple):
    """One state of an object, as a listing or a notification describes it. `etag` has no quotes."""

    key: str
    etag: str
    size: int
    modified_ms: int | None
    version: str | None = None

    @property
    def digest(self) -> bytes:
        """What identifies this state of the object: its key and its ETag."""
        return blake2b(f"{self.key}\0{self.etag}".encode(errors="surrogatepass"), digest_size=DIGEST_BYTES).digest()


class Selection(NamedTuple):
    """Which objects of a bucket an upstream reads. `state` is the folder of its own objects, if it is in the same bucket."""

    prefix: str
    pattern: str
    state: str | None

    def has(self, key: str) -> bool:
        """Return whether the object with this key is read. Keys that end with a slash are markers of folders, not objects."""
        if not key.startswith(self.prefix) or (self.state is not None and key.startswith(self.state)):
            return False
        if f"/{STATE_FOLDER}/" in f"/{key}":
            return False
        name = key.rpartition("/")[2]
        return bool(name) and (self.pattern == "*" or fnmatchcase(name, self.pattern))
