"""Errors of the client and the server as errors of Headrace: what failed, why, and what to do."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

from headrace.errors import HeadraceError, StreamError, UpstreamError

STREAM_NOT_FOUND: Final = 10059
CONSUMER_NOT_FOUND: Final = 10014
FILES_NOT_REMOVED: Final = 10051
NOT_ENABLED: Final = (10076, 10039)

_CREDENTIALS: Final = "Correct the credentials of the connection: login and password, token, nkey_seed or credentials."
PERMISSIONS: Final = (
    "Allow this user to publish to $JS.API.STREAM.INFO and $JS.API.CONSUMER of the stream, to $JS.ACK and to the dead-letter subject, "
    "and to subscribe to _INBOX.>. The guide NATS JetStream lists the subjects."
)
_LIMIT: Final = "Raise the limit of the stream or the account, or lower the argument of the upstream."

REJECTED: Final[Mapping[int, str]] = {
    STREAM_NOT_FOUND: "Create the stream, or correct its name or the domain of the connection. Headrace creates no streams.",
    10026: _LIMIT,
    10121: _LIMIT,
    10076: "Enable JetStream on the server.",
    10039: "Enable JetStream for the account of this user.",
    10099: "A work queue allows one consumer for each subject. Delete the other one, or read other subjects.",
    10100: "A work queue allows one consumer for each subject. Delete the other one, or read other subjects.",
    10093: "The subject must match a subject of the stream.",
}
"""Codes of JetStream that another attempt does not change, with what to do."""

TEMPORARY: Final = frozenset({10008, 10009, 10023, 10028, 10047, 10074, 10077})
"""Codes of JetStream after which the same request may succeed: no leader, no resources."""

_REJECTED_TEXTS: Final = {
    "authorization violation": _CREDENTIALS,
    "authorization failed": _CREDENTIALS,
    "authentication": _CREDENTIALS,
    "invalid user credentials": _CREDENTIALS,
    "permissions violation": PERMISSIONS,
    "secure connection": "Set tls=true in the extra of the connection, or enable TLS on the server.",
    "certificate": "Set ca_file in the extra of the connection to the certificate of the server's authority, and check its host name.",
}
AWAY_HINT: Final = "Is the server running? Are host and port of the connection right?"


class ApiError(Exception):
    """An error in an answer of JetStream's API."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        self.code = int(error.get("err_code", 0))
        self.status = int(error.get("code", 0))
        super().__init__(f"{error.get('description', 'unknown error')} ({self.code})")


def described(what: str, error: BaseException) -> HeadraceError:
    """Return the error of Headrace for an exception of the client or the API. `what` names what failed."""
    if isinstance(error, HeadraceError):
        return error
    text = (" ".join(str(error).split()) or type(error).__name__).removeprefix("nats: ").strip("'").rstrip(". ")
    if isinstance(error, ApiError):
        if error.code in TEMPORARY or (error.status >= 500 and error.code not in NOT_ENABLED):
            return StreamError(f"{what}: {text}.")
        return UpstreamError(f"{what}: {text}.", hint=REJECTED.get(error.code, "Correct the arguments of the upstream, or the stream."))
    if isinstance(error, ssl.SSLError):
        return UpstreamError(f"{what}: {text}.", hint=_REJECTED_TEXTS["certificate"])
    for part, hint in _REJECTED_TEXTS.items():
        if part in text.lower():
            return UpstreamError(f"{what}: {text}.", hint=hint)
    return StreamError(f"{what}: the server does not answer: {text}.", hint=AWAY_HINT)
