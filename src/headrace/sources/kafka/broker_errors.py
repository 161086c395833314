"""Errors of the client and the brokers as errors of Headrace: what failed, why, and what to do."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from headrace.errors import HeadraceError, StreamError, UpstreamError, UpstreamFenced

FAILED_CONNECTION: Final = "FAIL "
"""How the line of the client on each attempt to connect that failed begins."""

FENCED: Final = frozenset({"_FATAL", "_FENCED", "FENCED_INSTANCE_ID"})
"""Names of errors by which this reader is no longer the member of its group."""

LOGIN_HINT: Final = "Correct the login and password of the connection, or sasl.mechanism and security.protocol in its extra."
AUTHORITY_HINT: Final = (
    "Set ssl.ca.location in the extra of the connection to the authority of the broker's certificate. "
    "The certificate must be valid today, and name the host of the connection."
)
CERTIFICATE_HINT: Final = (
    "Set ssl.certificate.location and ssl.key.location in the extra of the connection to a valid certificate that the brokers trust."
)
CLIENT_HINT: Final = (
    "Correct the client's id and secret, which are the login and password of the connection, "
    "or sasl.oauthbearer.token.endpoint.url and sasl.oauthbearer.scope in its extra."
)
ENDPOINT_AUTHORITY_HINT: Final = (
    "Set https.ca.location in the extra of the connection to the authority of the token endpoint's certificate."
)
ENDPOINT_AWAY_HINT: Final = "Is the token endpoint running? Is sasl.oauthbearer.token.endpoint.url in the extra of the connection right?"
PROTOCOL_HINT: Final = (
    "Set security.protocol in the extra of the connection to the protocol of the listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."
)

REJECTED: Final[Mapping[str, str]] = {
    "_AUTHENTICATION": LOGIN_HINT,
    "SASL_AUTHENTICATION_FAILED": LOGIN_HINT,
    "UNSUPPORTED_SASL_MECHANISM": "Set sasl.mechanism in the extra of the connection to one that the broker offers.",
    "_SSL": AUTHORITY_HINT,
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

REFRESH_FAILED: Final = "Failed to acquire SASL OAUTHBEARER"
ENDPOINT_AWAY: Final = re.compile(
    rf"{REFRESH_FAILED}.*(failed to connect|could(n't| not) (connect|resolve)|timed? ?out|refused|reset|empty reply|HTTP 5\d\d)",
    re.IGNORECASE | re.DOTALL,
)
TEXTS: Final = (
    (re.compile(rf"{REFRESH_FAILED}.*(trust anchors|certificate|\bSSL\b|\bCA\b)", re.DOTALL), ENDPOINT_AUTHORITY_HINT),
    (re.compile(REFRESH_FAILED), CLIENT_HINT),
    (re.compile(r'"status" ?: ?"(invalid_token|insufficient_scope)"'), CLIENT_HINT),
    (re.compile(r"certificate verify failed"), AUTHORITY_HINT),
    (re.compile(r"SSL alert number (4[2-9]|116)\b"), CERTIFICATE_HINT),
    (re.compile(r"mechanism handshake failed: Broker: Request not valid"), PROTOCOL_HINT),
)
"""Texts of errors that another attempt does not change, with what to do. They share their codes with outages."""
CREDENTIALS: Final = re.compile(r"SASL authentication error: |certificate verify failed|SSL alert number (4[2-9]|116)\b")
"""Texts of errors by which a broker or this client rejects what the connection has."""
LOST: Final = re.compile(r"handshake failed: Local: ")
"""The text of an error of authentication that only says that the broker closed the connection."""
OTHER_PROTOCOL: Final = re.compile(r"PLAINTEXT broker listener|Disconnected.*in state SSL_HANDSHAKE|incorrect security\.protocol")
"""Texts of errors of a listener with another protocol. A broker that stops causes them too."""
CLOSED: Final = re.compile(r"Send failed: .*(Broken pipe|Connection reset)")
"""The text of an error of a connection that the broker closed before the client sent its next request."""

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


def rejection_hint(error: Any) -> str | None:
    """Return what to do about a `KafkaError` that another attempt does not change, or None for other errors."""
    text = str(error.str())
    if LOST.search(text) or ENDPOINT_AWAY.search(text):
        return None
    return next((hint for pattern, hint in TEXTS if pattern.search(text)), REJECTED.get(error.name()))


def rejects_credentials(error: Any) -> bool:
    """Return whether a broker rejects the credentials, or this client the broker's certificate, for a `KafkaError`."""
    return CREDENTIALS.search(str(error.str())) is not None


class ConnectionErrors:
    """The errors of a client's connections since its last successful request. `rejected` is one that another attempt does not change."""

    def __init__(self) -> None:
        self.rejected: Any = None
        self._last: Any = None
        self._all_closed = False

    def add(self, error: Any) -> None:
        """Add a `KafkaError`."""
        if error.name() == "_ALL_BROKERS_DOWN":
            self._all_closed = True
            return
        self._last = error
        if rejection_hint(error) is not None:
            self.rejected = error

    def clear(self) -> None:
        """Remove all errors, because a request succeeded."""
        self.rejected, self._last, self._all_closed = None, None, False

    def described(self, what: str, error: Any) -> HeadraceError:
        """Return the error of a request that ended with a `KafkaError`, with its cause where the connections had one."""
        if rejection_hint(error) is not None:
            return described(what, error)
        if self.rejected is not None:
            return described(what, self.rejected)
        if error.name() not in AWAY:
            return described(what, error)
        if (self._last is None and self._all_closed) or (self._last is not None and CLOSED.search(str(self._last.str()))):
            # The client reports a refused connection, and an error of TLS, but not that a broker closes a connection without an answer.
            return UpstreamError(f"{what}: the brokers close the connection without an answer.", hint=PROTOCOL_HINT)
        if self._last is not None and OTHER_PROTOCOL.search(str(self._last.str())):
            return UpstreamError(f"{what}: {_text(self._last)}.", hint=PROTOCOL_HINT)
        return described(what, self._last or error)


def client_logger() -> logging.Logger:
    """Return the logger for the client, which writes to standard error without one.

    The client gives the errors of connections to its callback too, so their lines are logged only with the level DEBUG.
    """
    logger = logging.getLogger("headrace.kafka.librdkafka")
    logger.addFilter(_is_logged)
    return logger


def _is_logged(record: logging.LogRecord) -> bool:
    return logging.getLogger().isEnabledFor(logging.DEBUG) or not record.getMessage().startswith(FAILED_CONNECTION)


def described(what: str, error: Any) -> HeadraceError:
    """Return the error of Headrace for a `KafkaError`. `what` names what failed."""
    name, text = error.name(), _text(error)
    if is_fenced(error):
        return UpstreamFenced(f"{what}: another reader has taken over the group: {text}.")
    hint = rejection_hint(error)
    if hint is not None:
        return UpstreamError(f"{what}: {text}.", hint=hint)
    if ENDPOINT_AWAY.search(text):
        return StreamError(f"{what}: {text}.", hint=ENDPOINT_AWAY_HINT)
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


def _text(error: Any) -> str:
    text = str(error.str()).rstrip(". :")
    return text if " " in text else f"{text} {error.name()}".strip()
