"""Errors of Pub/Sub as errors of Headrace, and failures of single messages of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.leases.leases import Lease
from headrace.sources.leases.service import Failures

PERMISSIONS: Final = (
    "Grant the role roles/pubsub.subscriber on the subscription. To check the subscription at its opening, grant roles/pubsub.viewer too."
)
_CREDENTIALS: Final = "Correct the credentials of the connection, or those of the machine: gcloud auth application-default login."
REJECTED: Final[Mapping[str, str]] = {
    "NOT_FOUND": "Create the subscription, or correct its name or the project of the connection. Headrace creates no subscriptions.",
    "PERMISSION_DENIED": PERMISSIONS,
    "UNAUTHENTICATED": _CREDENTIALS,
    "FAILED_PRECONDITION": "The subscription must be a pull subscription, attached to a topic.",
    "INVALID_ARGUMENT": "Correct the name of the subscription, or the project of the connection.",
    "DefaultCredentialsError": _CREDENTIALS,
    "MalformedError": _CREDENTIALS,
}
"""Status codes, and classes of errors of the client, that another attempt does not change, with what to do."""
REJECTED_PUBLICATIONS: Final[Mapping[str, str]] = {
    **REJECTED,
    "NOT_FOUND": "Create the dead-letter topic, or correct its name or the project of the connection. Headrace creates no topics.",
    "PERMISSION_DENIED": "Grant the role roles/pubsub.publisher on the dead-letter topic.",
    "FAILED_PRECONDITION": "Enable the dead-letter topic, and the key with which it is encrypted.",
    "INVALID_ARGUMENT": "Correct the name of the dead-letter topic, or the project of the connection.",
}
"""The same for requests about a dead-letter topic."""
AWAY: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})
AWAY_HINT: Final = "Is the service reachable? Are host and port of the connection right?"
TRANSIENT: Final = "TRANSIENT_"
"""The prefix of failures after which the same request may succeed. Only subscriptions with exactly-once delivery report them."""


def code_of(error: BaseException) -> str:
    """Return the status code of the service, or the class of an error of the client."""
    code = getattr(getattr(error, "grpc_status_code", None), "name", None)
    return str(code) if code else type(error).__name__


def described(what: str, error: BaseException, rejected: Mapping[str, str] = REJECTED) -> HeadraceError:
    """Return the error of Headrace for an exception of the client. `what` names what failed, `rejected` has the errors of its request."""
    if isinstance(error, HeadraceError):
        return error
    code = code_of(error)
    text = " ".join(str(getattr(error, "message", None) or str(error) or code).split()).rstrip(". ")
    if code in rejected:
        return UpstreamError(f"{what}: {text}.", hint=rejected[code])
    if code in AWAY:
        return StreamError(f"{what}: the service does not answer: {text}.", hint=AWAY_HINT)
    return StreamError(f"{what}: {text}.")


def failures(what: str, leases: Sequence[Lease], error: BaseException) -> Failures:
    """Return the failures of a request on a subscription with exactly-once delivery. Raises the error if it names no message.

    The service names each failed message by its receipt. A message that it does not name is requested again, which changes nothing.
    """
    named: Mapping[str, str] = getattr(error, "metadata", None) or {}
    if not any(lease.receipt in named for lease in leases):
        raise described(what, error) from error
    results: dict[Lease, HeadraceError | str] = {}
    for lease in leases:
        reason = named.get(lease.receipt)
        if reason is None or reason.startswith(TRANSIENT):
            results[lease] = StreamError(f"{what}: {reason or 'the service did not confirm a message'}.")
        else:
            results[lease] = reason
    return results
