"""A bucket of Google Cloud Storage. The generation of an object is its ETag here: it changes with its content, not with its metadata."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

import aiohttp
import msgspec

from headrace.core.connection import Connection
from headrace.core.connection_settings.gcs import read_settings
from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.connections.rest_client import Answer, open_session, send
from headrace.sources.objects.bucket import Conflict, Content, Missing, Page
from headrace.sources.objects.gcs.tokens import Tokens
from headrace.sources.objects.location import StoredObject

PAGE_OBJECTS: Final = 1_000
WRITE_INTERVAL_SECONDS: Final = 1.0
"""The service refuses more than one write of an object in a second."""

PERMISSIONS: Final = (
    "storage.objects.list and storage.objects.get on the bucket, and storage.objects.create and storage.objects.delete on the state"
)
_REJECTED: Final[Mapping[int, str]] = {
    400: "Correct the location or the connection.",
    401: "Correct the credentials of the connection.",
    403: f"Allow this account: {PERMISSIONS}.",
    404: "Correct the name of the bucket, or create it. Headrace creates no buckets.",
}
"""Answers that another attempt does not change, with what to do."""
_AWAY: Final = "Is the service reachable? Are host and port of the connection right?"
_MISSING: Final = frozenset({404, 412, 416})
_QUOTA: Final = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded"})


class _Item(msgspec.Struct):
    name: str
    generation: str
    size: str = "0"
    timeCreated: str | None = None  # noqa: N815  # the name of the service


class _Listing(msgspec.Struct):
    items: list[_Item] = []
    nextPageToken: str | None = None  # noqa: N815


class _Cause(msgspec.Struct):
    reason: str = ""


class _Failure(msgspec.Struct):
    message: str = ""
    errors: list[_Cause] = []


class _ErrorBody(msgspec.Struct):
    error: _Failure


class GcsClient:
    """Requests to the service with the credentials of one connection."""

    def __init__(self, connection: Connection, session: aiohttp.ClientSession, tokens: Tokens, address: str) -> None:
        self.address = address
        self.tokens = tokens
        self._connection = connection
        self._session = session

    @classmethod
    async def open(cls, connection: Connection, stack: AsyncExitStack) -> GcsClient:
        """Return a client, closed with the stack. It sends nothing yet. Raises `UpstreamError`."""
        settings = read_settings(connection)
        session = await open_session(connection, settings.ca_bundle, stack)
        return cls(connection, session, Tokens(settings), settings.address)

    async def request(
        self,
        what: str,
        method: str,
        path: str,
        query: Mapping[str, object],
        *,
        expected: frozenset[int] = frozenset(),
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
    ) -> Answer:
        """Send a request. Return a success or an answer with an expected status, and raise for others."""
        sent = dict(headers or {}) | await self.tokens.headers()
        url = f"{self.address}{path}?{urlencode(query, quote_via=quote)}"
        answer = await send(self._session, what, method, url, headers=sent, data=data, hint=_AWAY)
        if answer.status < 300 or answer.status in expected:
            return answer
        if answer.status == 401:
            self.tokens.drop()
        raise rejection(what, answer)


def rejection(what: str, answer: Answer) -> HeadraceError:
    """Return the error of Headrace for an answer of the service."""
    try:
        failure = msgspec.json.decode(answer.body, type=_ErrorBody).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        failure = _Failure()
    text = f"{what}: {failure.message.rstrip('. ')} ({answer.status})." if failure.message else f"{what}: HTTP status {answer.status}."
    if answer.status == 403 and any(cause.reason in _QUOTA for cause in failure.errors):
        return StreamError(text)
    hint = _REJECTED.get(answer.status)
    return StreamError(text) if hint is None else UpstreamError(text, hint=hint)


class GcsBucket:
    """One bucket; see `Bucket`."""

    def __init__(self, client: GcsClient, stack: AsyncExitStack, bucket: str) -> None:
        self._client = client
        self._stack = stack
        self._bucket = bucket
        self._objects = f"/storage/v1/b/{quote(bucket, safe='')}/o"
        self._written: dict[str, float] = {}

    @classmethod
    async def open(cls, connection: Connection, bucket: str) -> GcsBucket:
        """Create a client for the bucket."""
        async with AsyncExitStack() as stack:
            client = await GcsClient.open(connection, stack)
            return cls(client, stack.pop_all(), bucket)
        raise AssertionError

    async def list(self, prefix: str, continuation: str | None) -> Page:
        """Return up to 1,000 objects, in the order of their keys."""
        query: dict[str, object] = {
            "prefix": prefix,
            "maxResults": PAGE_OBJECTS,
            "fields": "nextPageToken,items(name,generation,size,timeCreated)",
        }
        what = f"Bucket {self._bucket!r} cannot be listed"
        answer = await self._client.request(
            what, "GET", self._objects, query | ({} if continuation is None else {"pageToken": continuation})
        )
        listing = _decoded(what, answer.body, _Listing)
        return Page([_stored(item) for item in listing.items], listing.nextPageToken or None)

    async def head(self, key: str, version: str | None = None) -> StoredObject:
        """Return the present state of an object, or that of its generation."""
        what = f"Object {key!r} cannot be read"
        generation = {} if version is None else {"generation": version}
        answer = await self._read(what, key, {"fields": "name,generation,size,timeCreated"} | generation)
        return _stored(_decoded(what, answer.body, _Item))

    async def get(self, key: str) -> Content:
        """Return a whole object."""
        answer = await self._read(f"Object {key!r} cannot be read", key, {"alt": "media"}, {"Accept-Encoding": "gzip"})
        return Content(answer.body, answer.headers["X-Goog-Generation"])

    async def get_range(self, stored: StoredObject, start: int, end: int) -> bytes:
        """Return some bytes of this generation of an object."""
        # Without `Accept-Encoding: gzip`, the service decompresses objects with `Content-Encoding: gzip` and ignores the range.
        headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "gzip"}
        query = {"alt": "media", "generation": stored.etag}
        answer = await self._read(f"Object {stored.key!r} cannot be read", stored.key, query, headers)
        return answer.body if answer.status == 206 else answer.body[start:end]

    async def put(self, key: str, data: bytes, *, replaces: str | None) -> str:
        """Write an object under a condition. Raises `Conflict`."""
        await self._pace(key)
        query = {"uploadType": "media", "name": key, "ifGenerationMatch": replaces or "0", "fields": "name,generation"}
        what = f"Object {key!r} cannot be written"
        answer = await self._client.request(
            what,
            "POST",
            f"/upload{self._objects}",
            query,
            expected=frozenset({412}),
            headers={"Content-Type": "application/octet-stream"},
            data=data,
        )
        if answer.status == 412:
            raise Conflict(what)
        return str(_decoded(what, answer.body, _Item).generation)

    async def delete(self, key: str) -> None:
        """Delete an object."""
        self._written.pop(key, None)
        what = f"Object {key!r} cannot be deleted"
        await self._client.request(what, "DELETE", f"{self._objects}/{quote(key, safe='')}", {}, expected=frozenset({404}))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._stack.aclose()

    async def _pace(self, key: str) -> None:
        """Wait until the service accepts another write of the object."""
        due = self._written.get(key, 0.0) + WRITE_INTERVAL_SECONDS
        if (pause := due - time.monotonic()) > 0:
            await asyncio.sleep(pause)
        self._written[key] = time.monotonic()

    async def _read(self, what: str, key: str, query: Mapping[str, object], headers: Mapping[str, str] | None = None) -> Answer:
        answer = await self._client.request(
            what, "GET", f"{self._objects}/{quote(key, safe='')}", query, expected=_MISSING, headers=headers
        )
        if answer.status in _MISSING:
            raise Missing(what)
        return answer


def _decoded(what: str, body: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StreamError(f"{what}: the answer is not of the JSON API of Google Cloud Storage: {error}.", hint=_AWAY) from error


def _stored(item: _Item) -> StoredObject:
    return StoredObject(item.name, item.generation, int(item.size), _milliseconds(item.timeCreated))


def _milliseconds(text: str | None) -> int | None:
    """Return a time of the service in milliseconds since 1970, or None if it is not valid."""
    try:
        return None if text is None else int(datetime.fromisoformat(text).timestamp() * 1_000)
    except ValueError:
        return None
