"""Small sets of entries, in the order of their addition: a tuple while there are few, to save memory, else a dict."""

from __future__ import annotations

from typing import Final, TypeAlias, TypeVar

_T = TypeVar("_T")
_MAX_TUPLE: Final = 8

Bucket: TypeAlias = tuple[_T, ...] | dict[_T, None]


def with_entry(bucket: Bucket[_T], entry: _T) -> Bucket[_T]:
    """Return the bucket with another entry."""
    if isinstance(bucket, dict):
        bucket[entry] = None
        return bucket
    return (*bucket, entry) if len(bucket) < _MAX_TUPLE else dict.fromkeys((*bucket, entry))


def without_entry(bucket: Bucket[_T], entry: _T) -> Bucket[_T]:
    """Return the bucket without an entry that it has."""
    if isinstance(bucket, dict):
        del bucket[entry]
        return bucket
    return tuple(other for other in bucket if other is not entry)
