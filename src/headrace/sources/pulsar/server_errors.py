"""Errors of the client and the admin API as errors of Headrace: what failed, why, and what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from headrace.errors import HeadraceError, StreamError, UpstreamError

CREDENTIALS: Final = "Correct the token or the certificates of the connection."
PERMISSIONS: Final = "Grant the role of the connection the action consume on the namespace. The guide Apache Pulsar lists the permissions."
TOPIC: Final = "Create the topic, or correct its name. Headrace creates no topics."
AWAY: Final = "Is the broker running? Are host, port and, with TLS, cafile of the connection right?"
ADMIN_AWAY: Final = "Is the admin API there? Set admin_url in the extra of the connection if it has another address."
BUSY: Final = "ConsumerBusy"

REJECTED: Final[Mapping[str, tuple[str, str]]] = {
    "AuthenticationError": ("the broker refuses the credentials", CREDENTIALS),
    "ErrorGettingAuthenticationData": ("the client cannot read the credentials", CREDENTIALS),
    "AuthorizationError": ("the role of the connection lacks a permission", PERMISSIONS),
    "TopicNotFound": ("the topic does not exist", TOPIC),
    "TopicTerminated": ("the topic is terminated", TOPIC),
    "InvalidTopicName": ("the name of the topic is invalid", TOPIC),
    "InvalidUrl": ("the address is invalid", AWAY),
    "IncompatibleSchema": ("the schema of the topic is another one", "Allow consumers and producers without a schema in the namespace."),
    "NotAllowedError": ("the broker does not allow it", "Do the policies of the namespace allow exclusive subscriptions?"),
}
"""Results of the client that another attempt does not change, with what to do."""

TEMPORARY: Final[Mapping[str, tuple[str, str]]] = {
    BUSY: (
        "the subscription has another consumer",
        "Stop the other reader, or use another subscription. A reader whose network was cut keeps it for about a minute.",
    ),
    "Timeout": ("no answer", AWAY),
    "ConnectError": ("the connection failed", AWAY),
    "LookupError": ("the broker cannot look the topic up", AWAY),
}
"""Results after which the same request may succeed, with what to do."""


def described(what: str, error: BaseException) -> HeadraceError:
    """Return the error of Headrace for an exception of the client. `what` names what failed."""
    if isinstance(error, HeadraceError):
        return error
    result = result_of(error)
    if result is None:
        return StreamError(f"{what}: {' '.join(str(error).split()) or type(error).__name__}.", hint=AWAY)
    if result in REJECTED:
        reason, hint = REJECTED[result]
        return UpstreamError(f"{what}: {reason} ({result}).", hint=hint)
    reason, hint = TEMPORARY.get(result, ("the broker does not answer as expected", AWAY))
    return StreamError(f"{what}: {reason} ({result}).", hint=hint)


def result_of(error: BaseException) -> str | None:
    """Return the name of the result that an exception of the client has, or None for another exception."""
    method = getattr(error, "error", None)
    return str(method().name) if callable(method) else None


def rejection(what: str, status: int, body: bytes) -> HeadraceError:
    """Return the error for a response of the admin API that is not a success."""
    reason = _reason(body)
    text = f"{what}: the admin API answers {status}" + (f": {reason}." if reason else ".")
    if status in (401, 403):  # a broker answers 401 also to a role without the permission, and names the operation
        return UpstreamError(text, hint=PERMISSIONS if status == 403 or "operation" in reason.lower() else CREDENTIALS)
    if status == 404:
        return UpstreamError(text, hint=TOPIC)
    if status in (408, 409, 412, 429) or status >= 500:
        return StreamError(text)
    return UpstreamError(text, hint=ADMIN_AWAY)


def _reason(body: bytes) -> str:
    try:
        fields = json.loads(body)
    except ValueError:
        return ""
    return " ".join(str(fields.get("reason", "")).split()).rstrip(". ") if isinstance(fields, dict) else ""
