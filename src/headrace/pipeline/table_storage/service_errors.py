"""The errors of object stores, which obstore and deltalake raise as texts: the code of the service, its reason, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from headrace.errors import PipelineError, TablesRefused, TablesUnavailable


class Service(NamedTuple):
    """What differs between the services."""

    permissions: str
    missing_bucket: str
    permanent: Mapping[str, str]
    """Errors that another attempt does not change, by the code of the service or else the status of the answer, with what to do."""


_CREDENTIALS: Final = "Correct the credentials of the connection."
_BUCKET: Final = "Correct the name of the bucket, or create it. Headrace creates no buckets."
_CONTAINER: Final = "Correct the name of the container, or create it. Headrace creates no containers."
_REGION: Final = "Correct the region of the connection: the bucket is in another one."
_S3_RIGHTS: Final = "s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload on the folder"
_AZURE_RIGHTS: Final = "the role Storage Blob Data Contributor on the container, or a SAS token with rcwdl"
_CONDITIONS: Final = "The server must support conditional writes: the header If-None-Match of PutObject."

SERVICES: Final[Mapping[str, Service]] = {
    "s3": Service(
        _S3_RIGHTS,
        "NoSuchBucket",
        {
            "SignatureDoesNotMatch": _CREDENTIALS,
            "InvalidAccessKeyId": _CREDENTIALS,
            "InvalidToken": _CREDENTIALS,
            "ExpiredToken": "The session token has expired. Store the connection again.",
            "NoSuchBucket": _BUCKET,
            "RequestTimeTooSkewed": "Correct the clock of this machine.",
            "PermanentRedirect": _REGION,
            "AuthorizationHeaderMalformed": _REGION,
            "NotImplemented": _CONDITIONS,
            "301": _REGION,
            "501": _CONDITIONS,
        },
    ),
    "az": Service(
        _AZURE_RIGHTS,
        "ContainerNotFound",
        {
            "AuthenticationFailed": f"{_CREDENTIALS} Is the clock of this machine right?",
            "InvalidAuthenticationInfo": _CREDENTIALS,
            "NoAuthenticationInformation": _CREDENTIALS,
            "AuthorizationFailure": f"{_CREDENTIALS} If they are right, the account's firewall may exclude this machine.",
            "AccountIsDisabled": "Enable the storage account.",
            "ContainerNotFound": _CONTAINER,
            "401": _CREDENTIALS,
        },
    ),
}
"""The services, by the scheme of their locations."""

_AUTHORITY: Final = "Add the authority of the server to the certificates of this machine, or set SSL_CERT_FILE."
_AWAY: Final = "Is the service reachable? Are host and port of the connection right? Runs stay open meanwhile."
_FROM_STORE: Final = re.compile(r"Error performing |Generic (S3|MicrosoftAzure) error|error sending request")
_CODE: Final = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)</Message>")
_STATUS: Final = re.compile(r"status code:? (\d{3})")
_CERTIFICATE: Final = re.compile(r"InvalidCertificate\(\s*(\w+)")
_CAUSE: Final = re.compile(r'(?:message|error): "([^"]+)"')
"""The error of the system in the form for developers, of which the text says only that a request was not sent."""
_DECORATION: Final = re.compile(r"\x1b\[[0-9;]*m|↳|\s+")
_MAX_TEXT: Final = 300


@contextmanager
def service_errors(scheme: str, what: str) -> Iterator[None]:
    """Raise `TablesRefused` or `TablesUnavailable` for errors of the service in the block.

    `what` says what failed, as a sentence without its point. That an object exists, or does not, passes unchanged.
    """
    from obstore.exceptions import AlreadyExistsError, BaseError

    service = SERVICES[scheme]
    try:
        yield
    except (PipelineError, AlreadyExistsError):
        raise
    except FileNotFoundError as error:
        if service.missing_bucket not in str(error):
            raise
        raise _described(service, what, error) from error
    except (OSError, BaseError) as error:
        raise _described(service, what, error) from error
    except Exception as error:
        if not _FROM_STORE.search(str(error)):
            raise
        raise _described(service, what, error) from error


def _described(service: Service, what: str, error: BaseException) -> PipelineError:
    short, _, debug = str(error).partition("Debug source")
    text = " ".join(_DECORATION.sub(" ", short).split())
    code, message, status = (match[1] if (match := each.search(text)) else None for each in (_CODE, _MESSAGE, _STATUS))
    certificate, cause = _CERTIFICATE.search(debug), _CAUSE.search(debug)
    if certificate is not None:
        return TablesRefused(f"{what}: the certificate of the server is not valid: {certificate[1]}.", hint=_AUTHORITY)
    reason = text[:_MAX_TEXT] if cause is None else f"{text[:_MAX_TEXT]}: {cause[1]}"
    if code:
        reason = f"{message or status} ({code})"
    hint = service.permanent.get(code or "") or service.permanent.get(status or "")
    if hint is None and status == "403":
        hint = f"Allow this user: {service.permissions}."
    return TablesUnavailable(f"{what}: {reason}", hint=_AWAY) if hint is None else TablesRefused(f"{what}: {reason}", hint=hint)
