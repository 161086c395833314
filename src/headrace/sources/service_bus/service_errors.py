"""Errors of Service Bus as errors of Headrace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from headrace.errors import HeadraceError, StreamError, UpstreamError

PERMISSIONS: Final = "the right Listen, or the role Azure Service Bus Data Receiver"
_CREDENTIALS: Final = "Correct the policy and the key, or the identity of the connection, and check the clock of this machine."
_ENTITY: Final = "Create the queue or subscription, or correct its name or the namespace of the connection. Headrace creates none."
REJECTED: Final[Mapping[str, str]] = {
    "ServiceBusAuthenticationError": _CREDENTIALS,
    "ServiceBusAuthorizationError": f"Grant this policy or identity: {PERMISSIONS}.",
    "MessagingEntityNotFoundError": _ENTITY,
    "MessagingEntityDisabledError": "Enable the queue or subscription.",
    "SSLCertVerificationError": "Give the certificates of the authority: ca_bundle.",
}
"""Classes of errors of the client that another attempt does not change, with what to do."""
REJECTED_SENDS: Final[Mapping[str, str]] = {
    **REJECTED,
    "ServiceBusAuthorizationError": "Grant this policy or identity the right Send, or the role Azure Service Bus Data Sender.",
    "MessagingEntityNotFoundError": "Create the dead-letter queue, or correct its name. Headrace creates none.",
    "MessagingEntityDisabledError": "Enable the dead-letter queue.",
}
"""The same for requests that send."""
NOT_ALLOWED: Final = "amqp:not-allowed"
"""The condition by which the service refuses a receiver without a session on an entity with sessions, and the reverse."""
DETACHED: Final = "amqp:link:detach-forced"
_SESSIONS: Final = "Give sessions= a number if the queue or subscription requires sessions, and only then."
MAX_CAUSES: Final = 5
AWAY: Final = frozenset({"ServiceBusConnectionError", "ServiceBusCommunicationError", "OperationTimeoutError", "TimeoutError"})
AWAY_HINT: Final = "Is the namespace reachable on port 5671? Is its name in the connection right?"
LOST_LOCKS: Final = frozenset({"MessageLockLostError", "MessageNotFoundError"})
"""Classes of errors by which the service says that another reader may receive the message."""


def condition_of(error: BaseException) -> str:
    """Return the condition that the service gives an error, or an empty text."""
    for one in (error, error.__cause__, *error.args):
        condition = getattr(one, "_condition", None) or getattr(one, "condition", None)
        if condition is not None:
            condition = getattr(condition, "value", condition)
            return condition.decode(errors="replace") if isinstance(condition, bytes) else str(condition)
    return ""


def is_lock_lost(error: BaseException) -> bool:
    """Return whether the service refuses a request because the lock of a message has ended."""
    return type(error).__name__ in LOST_LOCKS


def is_idle(error: BaseException) -> bool:
    """Return whether the service has closed a link by itself, as it does if nothing was sent over it for ten minutes."""
    return condition_of(error) == DETACHED


def is_session_lost(error: BaseException) -> bool:
    """Return whether the service refuses a request because the lock of the session has ended."""
    return type(error).__name__ == "SessionLockLostError"


def described(what: str, error: BaseException, rejected: Mapping[str, str] = REJECTED) -> HeadraceError:
    """Return the error of Headrace for an exception of the client. `what` names what failed, `rejected` has the errors of its request."""
    if isinstance(error, HeadraceError):
        return error
    text = " ".join((str(error) or type(error).__name__).split()).rstrip(". ")
    names = [one.__name__ for cause in _causes(error) for one in type(cause).__mro__]
    hint = next((rejected[name] for name in names if name in rejected), None)
    if hint is None and condition_of(error) == NOT_ALLOWED:
        hint = _SESSIONS
    if hint == _CREDENTIALS:
        text = f"the service refuses the credentials: {text}"
    if hint is not None:
        return UpstreamError(f"{what}: {text}.", hint=hint)
    if AWAY & {*names}:
        return StreamError(f"{what}: the service does not answer: {text}.", hint=AWAY_HINT)
    return StreamError(f"{what}: {text}.")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Return an error of the client, the one that it wraps, and the cause of that, and so on."""
    seen: BaseException | None = error
    for _ in range(MAX_CAUSES):
        if seen is None:
            return
        yield seen
        seen = getattr(seen, "inner_exception", None) or seen.__cause__


def is_entity_missing(error: BaseException) -> bool:
    """Return whether the service says that there is no such queue or subscription."""
    return type(error).__name__ == "MessagingEntityNotFoundError"
