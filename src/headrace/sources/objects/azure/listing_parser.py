"""Listings of containers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote
from xml.etree import ElementTree

from headrace.sources.objects.location import StoredObject

DIRECTORY: Final = "hdi_isfolder"
"""Metadata of a blob that stands for a folder."""


class Listing(NamedTuple):
    """A part of a listing. `next` continues it; it is None after the last part."""

    objects: Sequence[StoredObject]
    next: str | None


def parse_listing(body: bytes) -> Listing:
    """Return the blobs of a listing, without folders. Raises `ValueError` if the text is not a listing."""
    try:
        root = ElementTree.fromstring(body)  # noqa: S314  # expat limits the growth of entities
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from error
    if root.tag != "EnumerationResults":
        raise ValueError(f"it begins with {root.tag[:40]!r}")
    objects = [stored for blob in root.iterfind("Blobs/Blob") if (stored := _stored(blob)) is not None]
    return Listing(objects, root.findtext("NextMarker") or None)


@lru_cache(maxsize=1_024)
def milliseconds(text: str | None) -> int | None:
    """Return a time of a header or a listing in milliseconds since 1970, or None if it is not valid."""
    try:
        return None if not text else int(parsedate_to_datetime(text).timestamp() * 1_000)
    except ValueError:
        return None


def _stored(blob: ElementTree.Element) -> StoredObject | None:
    """Return a blob, or None for a directory of a hierarchical namespace, or the marker of a folder that a file system wrote."""
    fields: dict[str, str] = {}
    key = ""
    for part in blob:
        if part.tag == "Name":
            key = unquote(part.text or "") if part.get("Encoded") == "true" else part.text or ""
        elif part.tag == "Properties":
            fields |= {field.tag: field.text or "" for field in part}
        elif part.tag == "Metadata" and any(field.tag.lower() == DIRECTORY and field.text == "true" for field in part):
            return None
    if fields.get("ResourceType") == "directory":
        return None
    etag = fields.get("Etag", "").strip('"')
    if not key or not etag:
        raise ValueError("a blob has no name or no ETag")
    return StoredObject(key, etag, int(fields.get("Content-Length") or 0), milliseconds(fields.get("Last-Modified")))
