"""A container of Azure Blob Storage."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final
from urllib.parse import quote

from headrace.core.connection import Connection
from headrace.errors import StreamError
from headrace.sources.azure.client import AWAY, Answer, AzureClient
from headrace.sources.objects.azure.listing_parser import milliseconds, parse_listing
from headrace.sources.objects.bucket import Conflict, Content, Missing, Page
from headrace.sources.objects.location import StoredObject

PAGE_OBJECTS: Final = 1_000
PERMISSIONS: Final = "the role Storage Blob Data Contributor, or a SAS token with the permissions rcwdl"
_ALLOW: Final = f"Allow this identity or token: {PERMISSIONS}."
REJECTED: Final[Mapping[str, str]] = {
    "AuthorizationPermissionMismatch": _ALLOW,
    "AuthorizationResourceTypeMismatch": _ALLOW,
    "AuthorizationServiceMismatch": _ALLOW,
    "InsufficientAccountPermissions": _ALLOW,
    "ContainerNotFound": "Correct the name of the container, or create it. Headrace creates no containers.",
    "ResourceNotFound": "Correct the name of the account or of the container.",
    "InvalidResourceName": "Correct the name of the container.",
    "ContainerDisabled": "Enable the container.",
}
"""Errors that another attempt does not change, with what to do."""
_ABSENT: Final = frozenset({"BlobNotFound"})
_MISSING: Final = _ABSENT | {"ConditionNotMet", "InvalidRange"}
_CONFLICT: Final = _ABSENT | {"ConditionNotMet", "TargetConditionNotMet", "BlobAlreadyExists"}


async def open_blob_client(connection: Connection, stack: AsyncExitStack) -> AzureClient:
    """Return a client of the service, closed with the stack. It sends nothing yet."""
    return await AzureClient.open(connection, "blob", stack, REJECTED)


class AzureContainer:
    """One container; see `Bucket`."""

    def __init__(self, client: AzureClient, stack: AsyncExitStack, container: str) -> None:
        self._client = client
        self._stack = stack
        self._container = container
        self._path = f"/{quote(container, safe='$')}"

    @classmethod
    async def open(cls, connection: Connection, bucket: str) -> AzureContainer:
        """Create a client for the container."""
        async with AsyncExitStack() as stack:
            client = await open_blob_client(connection, stack)
            return cls(client, stack.pop_all(), bucket)
        raise AssertionError

    async def list(self, prefix: str, continuation: str | None) -> Page:
        """Return up to 1,000 objects, in the order of their keys."""
        query: dict[str, object] = {
            "restype": "container",
            "comp": "list",
            "prefix": prefix,
            "maxresults": PAGE_OBJECTS,
            "include": "metadata",
        }
        what = f"Container {self._container!r} cannot be listed"
        answer = await self._client.request(what, "GET", self._path, query | ({} if continuation is None else {"marker": continuation}))
        try:
            return Page(*parse_listing(answer.body))
        except ValueError as error:
            raise StreamError(f"{what}: the answer is not a listing of Azure Blob Storage: {error}.", hint=AWAY) from error

    async def head(self, key: str, version: str | None = None) -> StoredObject:
        """Return the present state of an object, or that of its version."""
        answer = await self._read("HEAD", key, _ABSENT, query={} if version is None else {"versionid": version})
        headers = answer.headers
        size, modified = int(headers.get("Content-Length", 0)), milliseconds(headers.get("Last-Modified"))
        return StoredObject(key, _etag(headers), size, modified)

    async def get(self, key: str) -> Content:
        """Return a whole object."""
        answer = await self._read("GET", key, _ABSENT)
        return Content(answer.body, _etag(answer.headers))

    async def get_range(self, stored: StoredObject, start: int, end: int) -> bytes:
        """Return some bytes of this state of an object."""
        headers = {"x-ms-range": f"bytes={start}-{end - 1}", "If-Match": f'"{stored.etag}"'}
        return (await self._read("GET", stored.key, _MISSING, headers)).body

    async def put(self, key: str, data: bytes, *, replaces: str | None) -> str:
        """Write an object under a condition. Raises `Conflict`."""
        condition = {"If-None-Match": "*"} if replaces is None else {"If-Match": f'"{replaces}"'}
        what = f"Object {key!r} cannot be written"
        headers = {"x-ms-blob-type": "BlockBlob"} | condition
        answer = await self._client.request(what, "PUT", self._blob(key), {}, expected=_CONFLICT, headers=headers, data=data)
        if answer.code:
            raise Conflict(what)
        return _etag(answer.headers)

    async def delete(self, key: str) -> None:
        """Delete an object, with its snapshots."""
        headers = {"x-ms-delete-snapshots": "include"}
        await self._client.request(f"Object {key!r} cannot be deleted", "DELETE", self._blob(key), {}, expected=_ABSENT, headers=headers)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._stack.aclose()

    def _blob(self, key: str) -> str:
        return f"{self._path}/{quote(key)}"

    async def _read(
        self,
        method: str,
        key: str,
        missing: frozenset[str],
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, object] | None = None,
    ) -> Answer:
        what = f"Object {key!r} cannot be read"
        answer = await self._client.request(what, method, self._blob(key), query or {}, expected=missing, headers=headers)
        if answer.code:
            raise Missing(what)
        return answer


def _etag(headers: Mapping[str, str]) -> str:
    return headers["ETag"].strip('"')
