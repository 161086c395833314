"""Errors of REST catalogs, AWS and object stores: whether to wait, or to correct the configuration."""

from __future__ import annotations

import errno

import botocore.exceptions
import pyiceberg.exceptions
import pytest
import requests.exceptions

from headrace.errors import PipelineError, TablesRefused, TablesUnavailable
from headrace.pipeline.tables.iceberg.errors import iceberg_errors
from headrace.pipeline.tables.iceberg.service_errors import service_error


def of_glue(code: str, status: int) -> Exception:
    response = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error: Exception = botocore.exceptions.ClientError(response, "UpdateTable")
    return error


def of_s3(code: str) -> OSError:
    return OSError(
        f"When reading information for key 'a' in bucket 'lake': AWS Error {code} during HeadObject operation: No response body."
    )


@pytest.mark.parametrize(
    "error",
    [
        requests.exceptions.ConnectionError("('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))"),
        requests.exceptions.ReadTimeout("Read timed out. (read timeout=60)"),
        pyiceberg.exceptions.CommitStateUnknownException("RESTError 502"),
        pyiceberg.exceptions.ServerError("RESTError 500"),
        pyiceberg.exceptions.ServiceUnavailableError("RESTError 503"),
        pyiceberg.exceptions.TooManyRequestsError("RESTError 429"),
        of_glue("InternalServiceException", 500),
        of_glue("ThrottlingException", 400),
        of_glue("OperationTimeoutException", 400),
        botocore.exceptions.EndpointConnectionError(endpoint_url="https://glue.example.com"),
        botocore.exceptions.ReadTimeoutError(endpoint_url="https://glue.example.com"),
        of_s3("NETWORK_CONNECTION"),
        of_s3("SLOW_DOWN"),
        of_s3("UNKNOWN (HTTP status 503)"),
    ],
    ids=str,
)
def test_a_service_that_does_not_answer_is_waited_for(error: Exception) -> None:
    with pytest.raises(TablesUnavailable, match=r"^The rows were not stored: .+\.$") as caught, iceberg_errors("The rows were not stored"):
        raise error
    assert "Runs stay open" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "error",
    [
        requests.exceptions.SSLError("certificate verify failed"),
        pyiceberg.exceptions.UnauthorizedError("NotAuthorizedException: no"),
        pyiceberg.exceptions.ForbiddenError("ForbiddenException: no"),
        pyiceberg.exceptions.OAuthError("invalid_client"),
        of_glue("AccessDeniedException", 400),
        of_glue("UnrecognizedClientException", 400),
        botocore.exceptions.NoCredentialsError(),
        botocore.exceptions.NoRegionError(),
        botocore.exceptions.SSLError(endpoint_url="https://glue.example.com", error="certificate verify failed"),
        of_s3("ACCESS_DENIED"),
        of_s3("NO_SUCH_BUCKET"),
        of_s3("UNKNOWN (HTTP status 403)"),
        PermissionError("Cannot open file, access denied: s3://lake/a"),
    ],
    ids=str,
)
def test_a_service_that_refuses_ends_the_pipeline(error: Exception) -> None:
    with pytest.raises(TablesRefused, match=r"^The rows were not stored: .+\.$") as caught, iceberg_errors("The rows were not stored"):
        raise error
    assert caught.value.hint


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        PermissionError(errno.EACCES, "Permission denied"),
        FileNotFoundError("s3://lake/a"),
        of_s3("RESOURCE_NOT_FOUND"),
        pyiceberg.exceptions.BadRequestError("no"),
        pyiceberg.exceptions.NoSuchNamespaceError("headrace"),
    ],
    ids=str,
)
def test_other_errors_are_those_of_the_table(error: Exception) -> None:
    assert service_error("The rows were not stored", error) is None
    with pytest.raises(PipelineError) as caught, iceberg_errors("The rows were not stored"):
        raise error
    assert type(caught.value) is PipelineError


def test_a_conflict_and_an_error_of_the_program_pass() -> None:
    for error in (pyiceberg.exceptions.CommitFailedException("conflict"), KeyError("n")):
        with pytest.raises(type(error)), iceberg_errors("The rows were not stored"):
            raise error
