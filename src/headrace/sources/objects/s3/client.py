"""A bucket of S3, or of a server with its protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from headrace.core.connection import Connection
from headrace.errors import HeadraceError, UpstreamError
from headrace.sources.aws import service_errors
from headrace.sources.aws.client import Service, open_client
from headrace.sources.aws.service_errors import code_of
from headrace.sources.objects.bucket import Conflict, Content, Missing, Page
from headrace.sources.objects.location import StoredObject
from headrace.sources.objects.notified import milliseconds
from headrace.sources.objects.s3.listing_parser import ListingParserFactory

ANSWER_SECONDS: Final = 20.0
MIN_BYTES_PER_SECOND: Final = 64 * 1024
"""A write that is slower fails."""
MAX_REQUESTS: Final = 32

PERMISSIONS: Final = (
    "s3:ListBucket on the bucket, s3:GetObject on the objects, and s3:GetObject, s3:PutObject and s3:DeleteObject on the state"
)
_ALLOW: Final = f"Allow this user: {PERMISSIONS}. If the bucket is encrypted with KMS, allow kms:Decrypt and kms:GenerateDataKey."
_REGION: Final = "Correct the region of the connection: the bucket is in another one."
REJECTED: Final[Mapping[str, str]] = {
    **service_errors.REJECTED,
    "AccessDenied": _ALLOW,
    "AccessDeniedException": _ALLOW,
    "KmsAccessDenied": _ALLOW,
    "KMS.AccessDeniedException": _ALLOW,
    "KmsDisabled": "Enable the key of the bucket.",
    "KMS.DisabledException": "Enable the key of the bucket.",
    "403": f"Allow this user: {PERMISSIONS}.",
    "AllAccessDisabled": "Enable the bucket.",
    "NoSuchBucket": "Correct the name of the bucket, or create it. Headrace creates no buckets.",
    "InvalidBucketName": "Correct the name of the bucket.",
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "NoRegionError": "Give the connection a region: s3://?region=eu-west-1",
    "NotImplemented": "The server must support conditional writes: the headers If-Match and If-None-Match of PutObject.",
}
"""Errors that another attempt does not change, with what to do."""
_MISSING: Final = frozenset({"NoSuchKey", "NoSuchVersion", "404", "NotFound", "PreconditionFailed", "412", "InvalidRange", "416"})
_CONFLICT: Final = frozenset({"PreconditionFailed", "412", "NoSuchKey", "404"})

SERVICE: Final = Service(
    name="s3",
    kinds=("s3", "aws"),
    hint="Set it like this: s3://ACCESS_KEY:SECRET@?region=eu-west-1, or s3://?region=eu-west-1 for the credentials of the machine.",
    extra="objects",
    library="Objects cannot be read: the client library",
    rejected=REJECTED,
)


async def open_s3_client(connection: Connection, stack: AsyncExitStack) -> Any:
    """Return a client of the service, closed with the stack. It sends nothing yet."""
    has_address = connection.host or connection.extra.get("endpoint_url")
    return await open_client(
        SERVICE,
        connection,
        stack,
        answer_seconds=ANSWER_SECONDS,
        max_requests=MAX_REQUESTS,
        components={"response_parser_factory": _parser_factory},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if has_address else "auto"},
    )


def _parser_factory() -> ListingParserFactory:
    from aiobotocore.parsers import AioResponseParserFactory

    return ListingParserFactory(AioResponseParserFactory())


def described(what: str, error: BaseException) -> HeadraceError:
    """Return the error of Headrace for an exception of the client. `what` names what failed."""
    return service_errors.described(what, error, REJECTED)


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
            client = await open_s3_client(connection, stack)
            return cls(client, stack.pop_all(), bucket)
        raise AssertionError

    async def list(self, prefix: str, continuation: str | None) -> Page:
        """Return up to 1,000 objects, in the order of their keys."""
        more = {} if continuation is None else {"ContinuationToken": continuation}
        answer = await self._request(f"Bucket {self._bucket!r} cannot be listed", self._client.list_objects_v2, {"Prefix": prefix, **more})
        objects = [
            StoredObject(one["Key"], one.get("ETag", "").strip('"'), int(one.get("Size", 0)), milliseconds(one.get("LastModified")))
            for one in answer.get("Contents", ())
        ]
        if not all(one.etag for one in objects):
            raise UpstreamError(
                f"Bucket {self._bucket!r} cannot be read: its objects have no ETags.",
                hint="Configure the server to store metadata of objects.",
            )
        return Page(objects, answer.get("NextContinuationToken") if answer.get("IsTruncated") == "true" else None)

    async def head(self, key: str, version: str | None = None) -> StoredObject:
        """Return the present state of an object, or that of its version."""
        arguments = {"Key": key} | ({} if version is None else {"VersionId": version})
        answer = await self._request(f"Object {key!r} cannot be read", self._client.head_object, arguments, _MISSING)
        modified = int(answer["LastModified"].timestamp() * 1_000)
        return StoredObject(key, answer["ETag"].strip('"'), int(answer["ContentLength"]), modified, version or answer.get("VersionId"))

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
        # The client waits for the permission to send a body without its timeout.
        async with _bounded(what, ANSWER_SECONDS + len(data) / MIN_BYTES_PER_SECOND):
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
            raise described(what, error) from error

    async def _request(
        self, what: str, call: Any, arguments: Mapping[str, Any], expected: frozenset[str] = frozenset(), raises: type[Exception] = Missing
    ) -> Mapping[str, Any]:
        """Send a request. Codes in `expected` raise `raises`."""
        try:
            answer: Mapping[str, Any] = await call(Bucket=self._bucket, **arguments)
        except Exception as error:
            if code_of(error) in expected:
                raise raises(what) from None
            raise described(what, error) from error
        return answer


@asynccontextmanager
async def _bounded(what: str, seconds: float) -> AsyncIterator[None]:
    """Raise `StreamError` in the block after these seconds."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise described(what, TimeoutError(f"no answer within {seconds:g} s")) from None
