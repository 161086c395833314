"""Errors of the client and the server as errors of Headrace: what failed, why, and what to do."""

from __future__ import annotations

import asyncio
import re
import ssl
from typing import Final

from headrace.errors import HeadraceError, StreamError, UpstreamError

_QUEUE_HINT: Final = "Create the queue, or correct its name or the virtual host of the connection. Headrace creates no queues."
PERMISSION_HINT: Final = "Allow the user to read the queue: rabbitmqctl set_permissions -p VHOST USER '' '' '^QUEUE$'"
_LOGIN_HINT: Final = "Correct the login and password of the connection. The user guest connects from the server's own machine only."
_VHOST_HINT: Final = "Create the virtual host, allow the user in it, or correct the path of the connection: amqp://host/vhost"
_CERTIFICATE_HINT: Final = "Give the certificate authority of the server as cafile in the extra of the connection."
_TIMEOUT_HINT: Final = "Find the trigger that holds the message, or raise consumer_timeout of the server."
STREAM_HINT: Final = "Read a stream with RabbitMQStreams(…, group=…)."
AWAY_HINT: Final = "Is the server running? Are host and port of the connection right, and amqps for a port with TLS?"

REJECTED: Final = (
    (re.compile(r"NOT_FOUND - no queue"), "the queue does not exist", _QUEUE_HINT),
    (re.compile(r"Login was refused|user can only connect via localhost"), "the server refuses the login", _LOGIN_HINT),
    (re.compile(r"Connection\.OpenOk|vhost .* not found|access to vhost"), "the server refuses the virtual host", _VHOST_HINT),
    (re.compile(r"ACCESS_REFUSED - access to"), "the user has no permission", PERMISSION_HINT),
    (re.compile(r"RESOURCE_LOCKED"), "the queue belongs to another connection: it is exclusive", "Declare the queue without exclusive."),
    (re.compile(r"invalid arg 'x-stream-offset'"), "it is not a stream", "Read a classic or quorum queue with RabbitMQ(…)."),
    (re.compile(r"NOT_IMPLEMENTED"), "the server does not support this", STREAM_HINT),
)
"""Messages of errors that another attempt does not change: what they mean, and what to do."""

_INTERNAL: Final = re.compile(r"INTERNAL_ERROR")
_INTERNAL_HINT: Final = (
    "Its log has the reason. Version 3.10 closes the connection when a stream has a compressed batch: AMQP cannot deliver it. "
    "Send without compression."
)
_NO_REPLICA: Final = re.compile(r"does not have a (running )?replica|home node")
_NO_REPLICA_HINT: Final = (
    "In a cluster, connect to a node that has a replica of the stream. After its start, a server recovers streams somewhat later."
)
_CONSUMER_TIMEOUT: Final = re.compile(r"delivery acknowledgement on channel .* timed out|consumer timeout")


def described(what: str, error: BaseException, *, permission_hint: str = PERMISSION_HINT) -> HeadraceError:
    """Return the error of Headrace for an exception of the client. `what` names what failed, `permission_hint` the permissions."""
    if isinstance(error, HeadraceError):
        return error
    text = error_text(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return UpstreamError(f"{what}: the certificate of the server is not trusted: {text}.", hint=_CERTIFICATE_HINT)
    for pattern, reason, hint in REJECTED:
        if pattern.search(text):
            return UpstreamError(f"{what}: {reason}: {text}.", hint=permission_hint if hint is PERMISSION_HINT else hint)
    if _CONSUMER_TIMEOUT.search(text):
        return StreamError(f"{what}: a message was not answered within the consumer timeout: {text}.", hint=_TIMEOUT_HINT)
    if _NO_REPLICA.search(text):
        return StreamError(f"{what}: the node does not have it now: {text}.", hint=_NO_REPLICA_HINT)
    if _INTERNAL.search(text):
        return StreamError(f"{what}: the server has failed: {text}.", hint=_INTERNAL_HINT)
    if isinstance(error, OSError | TimeoutError | asyncio.CancelledError):
        return StreamError(f"{what}: the server does not answer: {text}.", hint=AWAY_HINT)
    return StreamError(f"{what}: {text}.")


def is_in_use(error: BaseException) -> bool:
    """Return whether the server refuses a consumer because another one is exclusive, or because the queue allows no exclusive one."""
    return "in exclusive use" in error_text(error)


def is_locked(error: BaseException) -> bool:
    """Return whether the server refuses a queue because it belongs to another connection."""
    return "RESOURCE_LOCKED" in error_text(error)


def is_missing(error: BaseException) -> bool:
    """Return whether the server says that a queue or an exchange does not exist. A queue whose node is away does exist."""
    return re.search(r"NOT_FOUND - no (queue|exchange)", error_text(error)) is not None


def error_text(error: BaseException) -> str:
    """Return the message of the server, or the class of an exception without one."""
    if isinstance(error, TimeoutError) and not error.args:
        return "no answer in time"
    text = " ".join(str(part) for part in error.args if part not in (None, "")) or type(error).__name__
    return " ".join(text.split()).rstrip(". ")
