"""Reason codes of the server and errors of the client as errors of Headrace: what failed, why, and what to do."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

from headrace.errors import HeadraceError, StreamError, UpstreamError, UpstreamFenced

SESSION_TAKEN_OVER: Final = 142
LOGIN_HINT: Final = "Correct the login and password of the connection."
REJECTED: Final[Mapping[int, str]] = {
    132: "Use a server with MQTT 5.",
    133: "Correct the client_id: the server does not allow it.",
    134: LOGIN_HINT,
    135: "Correct the login and password of the connection, or allow its user to connect and to subscribe to the topics.",
    138: "The server has banned this client. Ask its operator.",
    143: "Correct the topic filter: the server does not allow it.",
    144: "Correct the topic: the server does not allow it.",
    155: "Use a server that supports QoS 1.",
    158: "The server supports no shared subscriptions: name topics without $share.",
    162: "The server supports no wildcards: name each topic.",
}
"""Reason codes that another attempt does not change, with what to do."""
_AWAY_HINT: Final = "Is the server running? Are host and port of the connection right, and mqtts for a port with TLS?"
_CERTIFICATE_HINT: Final = "Give the certificate authority of the server as cafile in the extra of the connection."


def rejected(what: str, reason: Any, properties: Any = None) -> HeadraceError:
    """Return the error for a reason code of the server. `what` names what failed."""
    detail = getattr(properties, "ReasonString", None)
    text = str(reason).lower() + (f" ({' '.join(str(detail).split())})" if detail else "")
    if reason.value == SESSION_TAKEN_OVER:
        return UpstreamFenced(f"{what}: another client has connected with the same client_id.")
    if reason.value in REJECTED:
        return UpstreamError(f"{what}: {text}.", hint=REJECTED[reason.value])
    return StreamError(f"{what}: {text}.", hint=_AWAY_HINT)


def described(what: str, error: BaseException) -> HeadraceError:
    """Return the error of Headrace for an exception of the client. `what` names what failed."""
    if isinstance(error, HeadraceError):
        return error
    text = " ".join(str(part) for part in error.args if part not in (None, "")).rstrip(". ") or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        return UpstreamError(f"{what}: the certificate of the server is not trusted: {text}.", hint=_CERTIFICATE_HINT)
    if isinstance(error, OSError | TimeoutError):
        return StreamError(f"{what}: the server does not answer: {text}.", hint=_AWAY_HINT)
    return StreamError(f"{what}: {text}.")
