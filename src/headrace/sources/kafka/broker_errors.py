"""Errors of the client and the brokers as errors of Headrace: what failed, why, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace.errors import HeadraceError, StreamError, UpstreamError, UpstreamFenced

FENCED: Final = frozenset({"_FATAL", "_FENCED", "FENCED_INSTANCE_ID"})
"""Names of errors by which this reader is no longer the member of its group."""

REJECTED: Final[Mapping[str, str]] = {
    "_AUTHENTICATION": "Correct the login and password of the connection, or sasl.mechanism and security.protocol in its extra.",
    "SASL_AUTHENTICATION_FAILED": "Correct the login and password of the connection, or sasl.mechanism in its extra.",
    "UNSUPPORTED_SASL_MECHANISM": "Set sasl.mechanism in the extra of the connection to one that the broker offers.",
    "_SSL": "Set ssl.ca.location in the extra of the connection to the certificate of the broker's authority, and check its host name.",
    "GROUP_AUTHORIZATION_FAILED": "Allow this user READ on the group.",
    "TOPIC_AUTHORIZATION_FAILED": "Allow this user READ and DESCRIBE on the topic.",
    "CLUSTER_AUTHORIZATION_FAILED": "Allow this user what the message names on the cluster.",
    "INCONSISTENT_GROUP_PROTOCOL": "Another program reads with this group and another protocol. Give the upstream a group of its own.",
    "UNRELEASED_INSTANCE_ID": "Another reader of this group lives. Stop it, or wait until its session has ended.",
    "INVALID_GROUP_ID": "Give the upstream another group.",
    "INVALID_SESSION_TIMEOUT": "Set session.timeout.ms in the extra of the connection to a value that the broker allows.",
    "_INVALID_ARG": "Correct the setting in the extra of the connection.",
}
"""Errors that another attempt does not change, with what to do."""

AWAY: Final = frozenset({"_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_TIMED_OUT", "_WAIT_COORD", "_TIMED_OUT_QUEUE"})
"""Errors of a cluster that does not answer."""
TRANSIENT: Final = AWAY | {
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_COORDINATOR",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "REBALANCE_IN_PROGRESS",
    "REQUEST_TIMED_OUT",
    "UNSTABLE_OFFSET_COMMIT",
}
"""Errors after which the same request may succeed."""
AWAY_HINT: Final = "Is the cluster running? Are host and port of the connection right, and security.protocol in its extra?"


def cause(error: BaseException) -> Any:
    """Return the `KafkaError` of an exception of the client, or None."""
    first = error.args[0] if error.args else None
    return first if hasattr(first, "code") and hasattr(first, "name") else None


def is_fenced(error: Any) -> bool:
    """Return whether another reader has taken over, for a `KafkaError`."""
    return bool(error.fatal()) or error.name() in FENCED


def described(what: str, error: Any) -> HeadraceError:
    """Return the error of Headrace for a `KafkaError`. `what` names what failed."""
    name, text = error.name(), str(error.str()).rstrip(". :")
    text = text if " " in text else f"{text} {name}".strip()
    if is_fenced(error):
        return UpstreamFenced(f"{what}: another reader has taken over the group: {text}.")
    if name in REJECTED:
        return UpstreamError(f"{what}: {text}.", hint=REJECTED[name])
    if name in AWAY:
        return StreamError(f"{what}: the cluster does not answer: {text}.", hint=AWAY_HINT)
    return StreamError(f"{what}: {text}.")


def described_exception(what: str, error: BaseException) -> HeadraceError:
    """Return the error of Headrace for an exception of the client."""
    if isinstance(error, HeadraceError):
        return error
    kafka_error = cause(error)
    return StreamError(f"{what}: {error}.") if kafka_error is None else described(what, kafka_error)


def topic_error(topic: str, error: Any) -> HeadraceError:
    """Return the error of Headrace for a topic that cannot be read."""
    if error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
        return UpstreamError(f"Topic {topic!r} does not exist.", hint="Create it, or correct its name. Headrace creates no topics.")
    return described(f"Topic {topic!r} cannot be read", error)
