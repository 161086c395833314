"""Notifications of S3. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_plus

import msgspec

from headrace.errors import MalformedEvent
from headrace.sources.objects.notified import Notified, milliseconds, trusted_etag

CREATED: Final = ("ObjectCreated:", "s3:ObjectCreated:")


class _Bucket(msgspec.Struct):
    name: str


class _Object(msgspec.Struct):
    key: str
    size: int | None = None
    eTag: str | None = None  # noqa: N815  # the name of S3
    versionId: str | None = None  # noqa: N815


class _S3(msgspec.Struct):
    bucket: _Bucket
    object: _Object


class _Record(msgspec.Struct):
    eventName: str  # noqa: N815
    s3: _S3
    eventTime: str | None = None  # noqa: N815


_decode: Final = msgspec.json.Decoder(_Record).decode


def parse_notification(data: bytes) -> Notified:
    """Return what one record of a notification says. Raises `MalformedEvent`."""
    try:
        record = _decode(data)
        key = unquote_plus(record.s3.object.key, errors="strict")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedEvent(f"The message is not a notification of S3: {error}.") from error
    described = record.s3.object
    return Notified(
        record.s3.bucket.name,
        key,
        record.eventName.startswith(CREATED),
        trusted_etag(described.eTag, described.size),
        described.size or 0,
        milliseconds(record.eventTime),
        described.versionId or None,  # empty in events of Ceph about a bucket without versions
    )
