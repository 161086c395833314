"""A bucket of S3, or of a server with its protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any, Final

from headrace.core.connection import Connection
from headrace.errors import UpstreamError
from headrace.sources.client_library import import_library
from headrace.sources.objects.bucket import Conflict, Content, Missing, Page
from headrace.sources.objects.location import StoredObject
from headrace.sources.objects.s3.listing_parser import ListingParserFactory
from headrace.sources.sqs.service_errors import REJECTED as REJECTED_BY_AWS
from headrace.sources.sqs.service_errors import code_of, described
from headrace.sources.sqs.settings import client_settings, profile_of

KINDS: Final = ("s3", "aws")
HINT: Final = "Set it like this: s3://ACCESS_KEY:SECRET@?region=eu-west-1, or s3://?region=eu-west-1 for the credentials of the machine."
CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 20.0
MAX_REQUESTS: Final = 32

PERMISSIONS: Final = (
    "s3:ListBucket on the bucket, s3:GetObject on the objects, and s3:GetObject, s3:PutObject and s3:DeleteObject on the state"
)
_CREDENTIALS: Final = "Correct the credentials of the connection: login is the access key, password the secret key."
REJECTED: Final[Mapping[str, str]] = {
    **REJECTED_BY_AWS,
    "AccessDenied": f"Allow this user: {PERMISSIONS}. If the bucket is encrypted with KMS, allow kms:Decrypt and kms:GenerateDataKey.",
    "403": f"Allow this user: {PERMISSIONS}.",
    "AllAccessDisabled": "Enable the bucket.",
    "NoSuchBucket": "Correct the name of the bucket, or create it. Headrace creates no buckets.",
    "InvalidBucketName": "Correct the name of the bucket.",
    "PermanentRedirect": "Correct the region of the connection: the bucket is in another one.",
    "AuthorizationHeaderMalformed": "Correct the region of the connection: the bucket is in another one.",
    "IllegalLocationConstraintException": "Correct the region of the connection: the bucket is in another one.",
    "NotImplemented": "The server must support conditional writes: the headers If-Match and If-None-Match of PutObject.",
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
}
"""Errors that another attempt does not change, with what to do."""
_MISSING: Final = frozenset({"NoSuchKey", "404", "NotFound", "PreconditionFailed", "412", "InvalidRange", "416"})
_CONFLICT: Final = frozenset({"PreconditionFailed", "412", "NoSuchKey", "404"})


def load_library() -> Any:
    """Return the module `aiobotocore.session`. Raises `UpstreamError` if it is not installed."""
    return import_library("Objects cannot be read: the client library", "objects", "aiobotocore.session", "aiobotocore.config")


async def open_client(connection: Connection, stack: AsyncExitStack) -> Any:
    """Return a client of the service, closed with the stack. It sends nothing yet."""
    library = await asyncio.to_thread(load_library)
    import aiobotocore.config
    import aiobotocore.parsers

    config = aiobotocore.config.AioConfig(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=ANSWER_SECONDS,
        max_pool_connections=MAX_REQUESTS,
        retries={"total_max_attempts": 1},
        user_agent_extra="headrace",
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if connection.host or connection.extra.get("endpoint_url") else "auto"},
    )
    session = library.AioSession(profile=profile_of(connection))
    session.register_component("response_parser_factory", ListingParserFactory(aiobotocore.parsers.AioResponseParserFactory()))
    try:
        return await stack.enter_async_context(session.create_client("s3", config=config, **client_settings(connection, KINDS, HINT)))
    except Exception as error:
        raise described(f"The connection '{connection.id}' cannot be used", error, REJECTED) from None


class S3Bucket:
    """One bucket; see `Bucket`."""

    def __init__(self, client: Any, stack: AsyncExitStack, bucket: str) -> None:
        self._client = client
        self._stack = stack
        self._bucket = bucket

    @classmethod
    async def open(cls, connection: Connection, bucket: str) -> S3Bucket:
        """Create a client for the bucket."""
        async with AsyncExitStack() as stack:
            client = await open_client(connection, stack)
            return cls(client, stack.pop_all(), bucket)
        raise AssertionError

    async def list(self, prefix: str, continuation: str | None) -> Page:
        """Return up to 1,000 objects, in the order of their keys."""
        more = {} if continuation is None else {"ContinuationToken": continuation}
        answer = await self._request(f"Bucket {self._bucket!r} cannot be listed", self._client.list_objects_v2, {"Prefix": prefix, **more})
        objects = [
            StoredObject(one["Key"], one.get("ETag", "").strip('"'), int(one.get("Size", 0)), _milliseconds(one.get("LastModified")))
            for one in answer.get("Contents", ())
        ]
        if not all(one.etag for one in objects):
            raise UpstreamError(
                f"Bucket {self._bucket!r} cannot be read: its objects have no ETags.",
                hint="Configure the server to store metadata of objects.",
            )
        return Page(objects, answer.get("NextContinuationToken") if answer.get("IsTruncated") == "true" else None)

    async def head(self, key: str) -> StoredObject:
        """Return the present state of an object."""
        answer = await self._request(f"Object {key!r} cannot be read", self._client.head_object, {"Key": key}, _MISSING)
        modified = int(answer["LastModified"].timestamp() * 1_000)
        return StoredObject(key, answer["ETag"].strip('"'), int(answer["ContentLength"]), modified, answer.get("VersionId"))

    async def get(self, key: str) -> Content:
        """Return a whole object."""
        what = f"Object {key!r} cannot be read"
        answer = await self._request(what, self._client.get_object, {"Key": key}, _MISSING)
        return Content(await self._body(what, answer), answer["ETag"].strip('"'))

    async def get_range(self, stored: StoredObject, start: int, end: int) -> bytes:
        """Return some bytes of this state of an object. The version is read if it is known, else the ETag is compared."""
        what = f"Object {stored.key!r} cannot be read"
        version: dict[str, Any] = {} if stored.version is None else {"VersionId": stored.version}
        arguments: dict[str, Any] = {"Key": stored.key, "Range": f"bytes={start}-{end - 1}", "IfMatch": f'"{stored.etag}"', **version}
        answer = await self._request(what, self._client.get_object, arguments, _MISSING)
        return await self._body(what, answer)

    async def put(self, key: str, data: bytes, *, replaces: str | None) -> str:
        """Write an object under a condition. Raises `Conflict`."""
        condition = {"IfNoneMatch": "*"} if replaces is None else {"IfMatch": f'"{replaces}"'}
        what = f"Object {key!r} cannot be written"
        answer = await self._request(what, self._client.put_object, {"Key": key, "Body": data, **condition}, _CONFLICT, Conflict)
        return str(answer["ETag"]).strip('"')

    async def delete(self, key: str) -> None:
        """Delete an object."""
        await self._request(f"Object {key!r} cannot be deleted", self._client.delete_object, {"Key": key})

    async def aclose(self) -> None:
        """Close the connections."""
        await self._stack.aclose()

    async def _body(self, what: str, answer: Mapping[str, Any]) -> bytes:
        try:
            async with answer["Body"] as stream:
                return bytes(await stream.read())
        except Exception as error:
            raise described(what, error, REJECTED) from error

    async def _request(
        self, what: str, call: Any, arguments: Mapping[str, Any], expected: frozenset[str] = frozenset(), raises: type[Exception] = Missing
    ) -> Mapping[str, Any]:
        """Send a request. Codes in `expected` raise `raises`."""
        try:
            answer: Mapping[str, Any] = await call(Bucket=self._bucket, **arguments)
        except Exception as error:
            if code_of(error) in expected:
                raise raises(what) from None
            raise described(what, error, REJECTED) from error
        return answer


def _milliseconds(text: str | None) -> int | None:
    """Return the time of a listing in milliseconds since 1970, or None if it is not valid."""
    try:
        return None if text is None else int(datetime.fromisoformat(text).timestamp() * 1_000)
    except ValueError:
        return None
