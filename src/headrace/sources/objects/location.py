"""Where objects are, and which object one is. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from headrace.errors import UpstreamError

SCHEMES: Final = ("s3",)
DIGEST_BYTES: Final = 16
MAX_KEY_BYTES: Final = 1024
_HINT: Final = "Write it like this: s3://bucket/folder"


STATE_FOLDER: Final = ".headrace"
"""The folder of states. Its objects are never read."""


class Location(NamedTuple):
    """A folder of a bucket. `prefix` is empty or ends with a slash."""

    scheme: str
    bucket: str
    prefix: str

    @property
    def url(self) -> str:
        """The location as text, without a slash at its end."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")


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


def parse_location(url: object) -> Location:
    """Return the location of a URL. Raises `UpstreamError`."""
    if not isinstance(url, str):
        raise UpstreamError(f"Invalid location {url!r}: it is not a text.", hint=_HINT)
    parts = urlsplit(url, allow_fragments=False)
    if parts.scheme not in SCHEMES or not parts.netloc or "@" in parts.netloc or ":" in parts.netloc or parts.query:
        raise UpstreamError(
            f"Invalid location {url!r}.", hint=f"{_HINT}. Address and credentials are in the connection. Schemes: {', '.join(SCHEMES)}."
        )
    folder = parts.path.strip("/")
    return Location(parts.scheme, parts.netloc, f"{folder}/" if folder else "")


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
