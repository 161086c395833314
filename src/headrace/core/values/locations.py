"""Folders of buckets, as URLs name them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.errors import UpstreamError

CONNECTIONS: Final[Mapping[str, str]] = {"s3": "s3", "gs": "gcs", "az": "azure"}
"""The schemes of locations, each with the id of its connection by default."""
MAX_KEY_BYTES: Final = 1024
_HINT: Final = "Write it like this: s3://bucket/folder"
_CONNECTION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,221}")
OTHER_SCHEMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("abfs", "abfss", "azure", "wasb", "wasbs"), "Write az://container/folder. The account is in the connection."),
    "gcs": "Write gs://bucket/folder.",
    "s3a": "Write s3://bucket/folder.",
    "s3n": "Write s3://bucket/folder.",
    "file": 'A folder of a file system is Directory("/path").',
}
"""Schemes of other systems, each with what to do."""


class Location(NamedTuple):
    """A folder of a bucket. `prefix` is empty or ends with a slash."""

    scheme: str
    bucket: str
    prefix: str

    @property
    def url(self) -> str:
        """The location as text, without a slash at its end."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")


class TableLocation(NamedTuple):
    """A folder of a bucket that has tables, and the id of the connection to it."""

    connection: str
    location: Location

    def __str__(self) -> str:
        """Return the URL with the connection, as the setting `tables` has it."""
        return f"{self.location.scheme}://{self.connection}@{self.location.url.partition('://')[2]}"


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


def parse_table_location(url: str) -> TableLocation:
    """Return the location in a URL such as `s3://bucket/folder` or `s3://CONNECTION@bucket/folder`. Raises `UpstreamError`."""
    scheme, separator, rest = url.partition("://")
    bucket, slash, folder = rest.partition("/")
    connection, at, bucket = bucket.rpartition("@")
    if at and not _CONNECTION.fullmatch(connection):
        hint = "Name a connection, without credentials: s3://CONNECTION@bucket/folder. Store it with: headrace connections set CONNECTION"
        raise UpstreamError(f"Invalid location of tables in the bucket {bucket!r}: the id of its connection.", hint=hint)
    location = parse_location(f"{scheme}{separator}{bucket}{slash}{folder}")
    if location.scheme == "gs":
        raise UpstreamError(f"Invalid location {url!r}: tables are in a folder of disks, in s3:// or in az://.", hint=_HINT)
    return TableLocation(connection or CONNECTIONS[location.scheme], location)
