"""Errors of a client of AWS as errors of Headrace: what failed, why, and what to do. Each service adds its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace.errors import HeadraceError, StreamError, UpstreamError

_CREDENTIALS: Final = "Correct the credentials of the connection: login is the access key, password the secret key."
_EXPIRED: Final = "Set the connection again with new credentials, or without any, so that the client uses and renews those of the machine."

REJECTED: Final[Mapping[str, str]] = {
    "InvalidClientTokenId": _CREDENTIALS,
    "InvalidAccessKeyId": _CREDENTIALS,
    "UnrecognizedClientException": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "MissingAuthenticationToken": _CREDENTIALS,
    "InvalidSecurity": _CREDENTIALS,
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "OptInRequired": "Enable the service for the account.",
    "NoCredentialsError": "Give the connection a login and a password, or give the machine a role or a profile.",
    "PartialCredentialsError": _CREDENTIALS,
    "CredentialRetrievalError": "Check the role or the profile of the machine.",
    "ProfileNotFound": "Correct the profile in the extra of the connection, or create it on this machine.",
    "InvalidRegionError": "Correct the region of the connection.",
    "UnknownEndpointError": "Correct the region of the connection.",
}
"""Errors of all services that another attempt does not change, with what to do."""

AWAY: Final = frozenset({"EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError", "HTTPClientError"})
"""Errors of a service that does not answer."""
AWAY_HINT: Final = "Is the service reachable? Are region, host and port of the connection right?"


def code_of(error: BaseException) -> str:
    """Return the code of the service, or the class of an error of the client."""
    response = getattr(error, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, Mapping) else None
    return str(code) if code else type(error).__name__


def described(what: str, error: BaseException, rejected: Mapping[str, str]) -> HeadraceError:
    """Return the error of Headrace for an exception of a client. `what` names what failed, `rejected` has the errors of its service."""
    if isinstance(error, HeadraceError):
        return error
    code, text = code_of(error), _text(error).rstrip(". ")
    if code in rejected:
        return UpstreamError(f"{what}: {text}.", hint=rejected[code])
    if code in AWAY or isinstance(error, OSError | TimeoutError):
        return StreamError(f"{what}: the service does not answer: {text}.", hint=AWAY_HINT)
    return StreamError(f"{what}: {text}.")


def _text(error: BaseException) -> str:
    response = getattr(error, "response", None)
    if isinstance(response, Mapping) and (message := response.get("Error", {}).get("Message")):
        return f"{message} ({code_of(error)})"
    return str(error) or type(error).__name__
