"""Where objects are, and which object one is. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Final, NamedTuple

from headrace.errors import UpstreamError

CONNECTIONS: Final[Mapping[str, str]] = {"s3": "s3", "gs": "gcs", "az": "azure"}
"""The schemes of locations, each with the id of its connection by default."""
DIGEST_BYTES: Final = 16
MAX_KEY_BYTES: Final = 1024
_HINT: Final = "Write it like this: s3://bucket/folder"
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,221}")
OTHER_SCHEMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("abfs", "abfss", "azure", "wasb", "wasbs"), "Write az://container/folder. The account is in the connection."),
    "gcs": "Write gs://bucket/folder.",
    "s3a": "Write s3://bucket/folder.",
    "s3n": "Write s3://bucket/folder.",
    "file": 'A folder of a file system is Directory("/path").',
}
"""Schemes of other systems, each with what to do."""


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
    """Return the location of a URL. Raises `UpstreamError`.

    A key is a text: nothing of the folder is decoded, and no parts of it are resolved.
    """
    if not isinstance(url, str):
        raise UpstreamError(f"Invalid location {url!r}: it is not a text.", hint=_HINT)
    scheme, separator, rest = url.partition("://")
    if scheme not in CONNECTIONS or not separator:
        hint = OTHER_SCHEMES.get(scheme) if separator else None
        raise _invalid(url, f"the schemes are {', '.join(CONNECTIONS)}", hint or _HINT)
    bucket, _, folder = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise _invalid(url, "the name of the bucket", f"{_HINT}. Address and credentials are in the connection.")
    folder = folder.removesuffix("/")
    if not folder.isprintable() or "?" in folder:
        raise _invalid(url, "the folder has a question mark, or a character that is not printable", _HINT)
    if folder and any(part in ("", ".", "..") for part in folder.split("/")):
        raise _invalid(url, "the folder has an empty part, '.' or '..'", "Write the folder as it is in the keys of the objects.")
    if len(folder.encode()) >= MAX_KEY_BYTES:
        raise _invalid(f"{url[:80]}…", f"the folder is longer than {MAX_KEY_BYTES} bytes", "Shorten it.")
    return Location(scheme, bucket, f"{folder}/" if folder else "")


def _invalid(url: str, reason: str, hint: str) -> UpstreamError:
    return UpstreamError(f"Invalid location {url!r}: {reason}.", hint=hint)


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
