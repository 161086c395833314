"""Errors of Kinesis and of the table of its progress as errors of Headrace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.aws import service_errors
from headrace.sources.aws.service_errors import code_of

PERMISSIONS: Final = "kinesis:DescribeStreamSummary, kinesis:ListShards, kinesis:GetShardIterator, kinesis:GetRecords"
TABLE_PERMISSIONS: Final = "dynamodb:Query, dynamodb:GetItem, dynamodb:UpdateItem, dynamodb:DeleteItem"
_ALLOW: Final = f"Allow this user on the stream: {PERMISSIONS}. If the stream is encrypted, allow kms:Decrypt on its key too."
_ALLOW_TABLE: Final = f"Allow this user on the table: {TABLE_PERMISSIONS}."
_REGION: Final = "Give the connection a region: aws://?region=eu-west-1"

REJECTED: Final[Mapping[str, str]] = {
    **service_errors.REJECTED,
    "AccessDenied": _ALLOW,
    "AccessDeniedException": _ALLOW,
    "KMSAccessDeniedException": _ALLOW,
    "KMSDisabledException": "Enable the key of the stream.",
    "KMSInvalidStateException": "Enable the key of the stream.",
    "KMSNotFoundException": "Create the key of the stream, or encrypt the stream with another one.",
    "KMSOptInRequired": "Enable KMS for the account.",
    "ResourceNotFoundException": "Create the stream, or correct its name or the region of the connection. Headrace creates no streams.",
    "NoRegionError": _REGION,
}
"""Errors of Kinesis that another attempt does not change, with what to do."""

TABLE_REJECTED: Final[Mapping[str, str]] = {
    **service_errors.REJECTED,
    "AccessDenied": _ALLOW_TABLE,
    "AccessDeniedException": _ALLOW_TABLE,
    "NoRegionError": _REGION,
}
"""The same for the table. Errors of the table itself are added with the command that creates it."""

THROTTLED: Final = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "LimitExceededException",
        "KMSThrottlingException",
        "ThrottlingException",
        "RequestLimitExceeded",
    }
)
EXPIRED_ITERATOR: Final = "ExpiredIteratorException"
INVALID_ARGUMENT: Final = "InvalidArgumentException"
CONDITION_FAILED: Final = "ConditionalCheckFailedException"
MISSING: Final = "ResourceNotFoundException"


class Throttled(StreamError):
    """The service takes fewer requests now."""


def described(what: str, error: BaseException) -> HeadraceError:
    """Return the error of Headrace for an exception of the client of Kinesis. `what` names what failed."""
    failure = service_errors.described(what, error, REJECTED)
    return Throttled(str(failure)) if code_of(error) in THROTTLED else failure


def described_table(what: str, error: BaseException, table: str) -> HeadraceError:
    """Return the error of Headrace for an exception of the client of DynamoDB."""
    code = code_of(error)
    if code == MISSING:
        return UpstreamError(
            f"{what}: there is no table {table!r} in the region of the connection.", hint=f"Create it: {create_command(table)}"
        )
    if code == "ValidationException":
        failure = service_errors.described(what, error, {code: f"The table needs other keys. Create one: {create_command(table)}"})
    else:
        failure = service_errors.described(what, error, TABLE_REJECTED)
    return Throttled(str(failure)) if code in THROTTLED else failure


def create_command(table: str) -> str:
    """Return the command that creates the table."""
    return (
        f"aws dynamodb create-table --table-name {table} --billing-mode PAY_PER_REQUEST "
        "--attribute-definitions AttributeName=reader,AttributeType=S AttributeName=shard,AttributeType=S "
        "--key-schema AttributeName=reader,KeyType=HASH AttributeName=shard,KeyType=RANGE"
    )
