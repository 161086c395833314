"""Errors of the services of a configured catalog: a REST server, AWS, and object stores."""

from __future__ import annotations

import re
import sys
from typing import Any, Final

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitStateUnknownException,
    ForbiddenError,
    OAuthError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
)
from requests.exceptions import RequestException, SSLError

from headrace.errors import TablesRefused, TablesUnavailable

ServiceError = TablesRefused | TablesUnavailable

_AWAY: Final = "Check that the catalog and the object store can be reached. Runs stay open meanwhile."
_REJECTED: Final = "Correct the catalog 'headrace' of pyiceberg's configuration, its credentials, or the permissions of their user."
_AUTHORITY: Final = "Add the authority of the server to the certificates of this machine, or set REQUESTS_CA_BUNDLE."

_UNAVAILABLE_REST: Final = (CommitStateUnknownException, ServerError, ServiceUnavailableError, TooManyRequestsError)
_REJECTED_REST: Final = (AuthorizationExpiredError, ForbiddenError, OAuthError, UnauthorizedError)
_AWS_ERROR: Final = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d{3})\))?")
"""The error of a request to S3 in the text of pyarrow."""
_REJECTED_S3: Final = re.compile(r"ACCESS_DENIED|NO_SUCH_BUCKET|INVALID_|SIGNATURE|TOKEN|UNRECOGNIZED_CLIENT|NOT_AUTHORIZED")
_UNAVAILABLE_S3: Final = re.compile(r"NETWORK_CONNECTION|UNAVAILABLE|INTERNAL_FAILURE|SLOW_DOWN|THROTTL|TIMEOUT")
_THROTTLED_AWS: Final = re.compile(r"Throttl|LimitExceeded|TooManyRequests|Timeout|SlowDown")


def service_error(what: str, error: BaseException) -> ServiceError | None:
    """Return the error of Headrace for an error of a service, or None for another error. `what` is a sentence without its point."""
    if isinstance(error, SSLError):
        return TablesRefused(f"{what}: {error}.", hint=_AUTHORITY)
    if isinstance(error, (RequestException, *_UNAVAILABLE_REST)):
        return _unavailable(what, _reason(error))
    if isinstance(error, _REJECTED_REST):
        return _rejected(what, _reason(error))
    if isinstance(error, PermissionError) and error.errno is None:  # of an object store: a file system has a number
        return _rejected(what, _reason(error))
    if isinstance(error, OSError) and (match := _AWS_ERROR.search(str(error))) is not None:
        return _of_s3(what, error, *match.groups())
    return _of_aws(what, error)


def _of_s3(what: str, error: OSError, code: str, status: str | None) -> ServiceError | None:
    if _REJECTED_S3.search(code) or status == "403":
        return _rejected(what, _reason(error))
    return _unavailable(what, _reason(error)) if _UNAVAILABLE_S3.search(code) or (status or "").startswith("5") else None


def _of_aws(what: str, error: BaseException) -> ServiceError | None:
    """Return the error for one of botocore, which is not loaded without Glue."""
    botocore: Any = sys.modules.get("botocore.exceptions")
    if botocore is None or not isinstance(error, (botocore.ClientError, botocore.BotoCoreError)):
        return None
    if isinstance(error, botocore.ClientError):
        response: Any = error
        code = str(response.response.get("Error", {}).get("Code", ""))
        status = int(response.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        is_away = status >= 500 or _THROTTLED_AWS.search(code) is not None
    else:
        is_away = isinstance(error, (botocore.HTTPClientError, botocore.ConnectionError)) and not isinstance(error, botocore.SSLError)
    return (_unavailable if is_away else _rejected)(what, _reason(error))


def _reason(error: BaseException) -> str:
    return str(error).split("\n", 1)[0].rstrip(".")


def _unavailable(what: str, reason: str) -> TablesUnavailable:
    return TablesUnavailable(f"{what}: {reason}.", hint=_AWAY)


def _rejected(what: str, reason: str) -> TablesRefused:
    return TablesRefused(f"{what}: {reason}.", hint=_REJECTED)
