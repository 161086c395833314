"""Errors of the client and the service as errors of Headrace: what failed, why, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace.errors import HeadraceError, StreamError, UpstreamError

PERMISSIONS: Final = "sqs:GetQueueUrl, sqs:GetQueueAttributes, sqs:ReceiveMessage, sqs:DeleteMessage, sqs:ChangeMessageVisibility"
_CREDENTIALS: Final = "Correct the credentials of the connection: login is the access key, password the secret key."
_EXPIRED: Final = "Set the connection again with new credentials, or without any, so that the client uses and renews those of the machine."
_ALLOW: Final = f"Allow this user on the queue: {PERMISSIONS}. If the queue is encrypted, allow kms:Decrypt on its key too."
_QUEUE: Final = "Create the queue, or correct its name, the region of the connection or the account. Headrace creates no queues."

REJECTED: Final[Mapping[str, str]] = {
    "AccessDenied": _ALLOW,
    "AccessDeniedException": _ALLOW,
    "KmsAccessDenied": _ALLOW,
    "KMS.AccessDeniedException": _ALLOW,
    "KmsDisabled": "Enable the key of the queue.",
    "InvalidClientTokenId": _CREDENTIALS,
    "InvalidAccessKeyId": _CREDENTIALS,
    "UnrecognizedClientException": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "MissingAuthenticationToken": _CREDENTIALS,
    "InvalidSecurity": _CREDENTIALS,
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "OptInRequired": "Enable the service for the account.",
    "AWS.SimpleQueueService.NonExistentQueue": _QUEUE,
    "QueueDoesNotExist": _QUEUE,
    "NoCredentialsError": "Give the connection a login and a password, or give the machine a role or a profile.",
    "PartialCredentialsError": _CREDENTIALS,
    "CredentialRetrievalError": "Check the role or the profile of the machine.",
    "NoRegionError": "Give the connection a region: sqs://?region=eu-west-1",
    "ProfileNotFound": "Correct the profile in the extra of the connection, or create it on this machine.",
    "InvalidRegionError": "Correct the region of the connection.",
    "UnknownEndpointError": "Correct the region of the connection.",
}
"""Errors that another attempt does not change, with what to do."""

AWAY: Final = frozenset({"EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError", "HTTPClientError"})
"""Errors of a service that does not answer."""
AWAY_HINT: Final = "Is the service reachable? Are region, host and port of the connection right?"

INVALID_RECEIPTS: Final = frozenset(
    {
        "ReceiptHandleIsInvalid",
        "InvalidParameterValue",
        "InvalidReceiptHandle",
        "MessageNotInflight",
        "AWS.SimpleQueueService.MessageNotInflight",
    }
)
"""Codes of single messages whose receipt is too old, or which another reader has deleted."""


def code_of(error: BaseException) -> str:
    """Return the code of the service, or the class of an error of the client."""
    response = getattr(error, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, Mapping) else None
    return str(code) if code else type(error).__name__


def described(what: str, error: BaseException, rejected: Mapping[str, str] = REJECTED) -> HeadraceError:
    """Return the error of Headrace for an exception of a client of AWS. `what` names what failed; `rejected` is as `REJECTED`."""
    if isinstance(error, HeadraceError):
        return error
    code, text = code_of(error), _text(error).rstrip(". ")
    if code in rejected:
        return UpstreamError(f"{what}: {text}.", hint=rejected[code])
    if code in AWAY or isinstance(error, OSError | TimeoutError):
        return StreamError(f"{what}: the service does not answer: {text}.", hint=AWAY_HINT)
    return StreamError(f"{what}: {text}.")


def is_receipt_invalid(failure: Mapping[str, Any]) -> bool:
    """Return whether the failure of one message in an answer says that another attempt with its receipt fails too."""
    return bool(failure.get("SenderFault")) and failure.get("Code") in INVALID_RECEIPTS


def failure_text(failure: Mapping[str, Any]) -> str:
    """Return the code and the reason of one message's failure in an answer."""
    return ": ".join(str(failure[name]) for name in ("Code", "Message") if failure.get(name))


def _text(error: BaseException) -> str:
    response = getattr(error, "response", None)
    if isinstance(response, Mapping) and (message := response.get("Error", {}).get("Message")):
        return f"{message} ({code_of(error)})"
    return str(error) or type(error).__name__
