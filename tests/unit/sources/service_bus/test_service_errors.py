"""Errors of the client, as its own function makes them from what the service says."""

from __future__ import annotations

import logging
import ssl
from typing import Any

import pytest
from azure.servicebus import exceptions
from azure.servicebus._pyamqp import error as amqp
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from headrace.errors import HeadraceError, StreamError, UpstreamError
from headrace.sources.service_bus.service_errors import (
    REJECTED_SENDS,
    condition_of,
    described,
    is_entity_missing,
    is_lock_lost,
    is_session_lost,
)

LOGGER = logging.getLogger("test")
WHAT = "'orders' cannot be read"


def refusal(condition: bytes, text: str | None = "No way.") -> Any:
    """Return the error of the client if the service closes a receiver with this condition."""
    return PyamqpTransport.create_servicebus_exception(LOGGER, amqp.AMQPLinkError(condition, description=text))


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (exceptions.ServiceBusAuthenticationError(message="No."), "Correct the policy and the key"),
        (exceptions.ServiceBusAuthorizationError(message="No."), "the right Listen"),
        (exceptions.MessagingEntityNotFoundError(message="No."), "Headrace creates none"),
        (exceptions.MessagingEntityDisabledError(message="No."), "Enable the queue or subscription"),
        (exceptions.ServiceBusError("No.", condition="amqp:not-allowed"), "sessions="),
        (ssl.SSLCertVerificationError("No."), "ca_bundle"),
        (refusal(b"amqp:unauthorized-access"), "the right Listen"),
        (refusal(b"amqp:not-found"), "Headrace creates none"),
        (refusal(b"com.microsoft:entity-disabled"), "Enable the queue or subscription"),
        (refusal(b"amqp:not-allowed"), "sessions="),
    ],
)
def test_an_error_that_stays_says_what_to_do(error: Exception, hint: str) -> None:
    found = described(WHAT, error)
    assert type(found) is UpstreamError
    assert str(found).startswith(f"{WHAT}: ")
    assert hint in str(found.hint)


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ServiceBusConnectionError(),
        exceptions.ServiceBusCommunicationError(),
        exceptions.OperationTimeoutError(),
        TimeoutError(),
        PyamqpTransport.create_servicebus_exception(LOGGER, amqp.AMQPConnectionError(amqp.ErrorCondition.SocketError)),
        refusal(b"com.microsoft:timeout"),
    ],
)
def test_a_service_that_is_away_may_answer_later(error: Exception) -> None:
    found = described(WHAT, error)
    assert type(found) is StreamError
    assert str(found).startswith(f"{WHAT}: the service does not answer: ")
    assert "5671" in str(found.hint)


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ServiceBusServerBusyError(),
        exceptions.ServiceBusQuotaExceededError(),
        exceptions.SessionCannotBeLockedError(),
        exceptions.SessionLockLostError(),
        exceptions.MessageAlreadySettled(action="complete"),
        exceptions.ServiceBusError("It failed."),
        refusal(b"amqp:internal-error"),
        refusal(b"com.microsoft:server-busy"),
        OSError("no route"),
    ],
)
def test_any_other_error_may_pass(error: Exception) -> None:
    found = described(WHAT, error)
    assert (type(found), found.hint) == (StreamError, None)


def test_a_certificate_that_is_not_trusted_stays() -> None:
    """The client gives the error of the connection the one of TLS as its cause."""
    reason = ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate")
    try:
        raise amqp.AMQPConnectionError(amqp.ErrorCondition.SocketError, description=f"Failed: {reason}", error=reason) from reason
    except amqp.AMQPConnectionError as error:
        found = described(WHAT, PyamqpTransport.create_servicebus_exception(LOGGER, error))
    assert type(found) is UpstreamError
    assert "ca_bundle" in str(found.hint)


def test_a_text_has_one_line_and_one_full_stop() -> None:
    assert str(described("It failed", OSError("no \n  route. "))) == "It failed: no route."
    assert str(described("It failed", OSError())) == "It failed: OSError."


def test_an_error_of_headrace_stays() -> None:
    own = StreamError("no")
    assert described(WHAT, own) is own


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (exceptions.ServiceBusAuthorizationError(), "the right Send"),
        (exceptions.MessagingEntityNotFoundError(), "Create the dead-letter queue"),
        (exceptions.MessagingEntityDisabledError(), "Enable the dead-letter queue"),
        (exceptions.ServiceBusAuthenticationError(), "Correct the policy"),
    ],
)
def test_a_sender_has_hints_of_its_own(error: Exception, hint: str) -> None:
    found: HeadraceError = described("Copies cannot be sent", error, REJECTED_SENDS)
    assert type(found) is UpstreamError
    assert hint in str(found.hint)


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (refusal(b"amqp:not-allowed"), "amqp:not-allowed"),
        (amqp.AMQPLinkError(b"amqp:not-allowed"), "amqp:not-allowed"),
        (amqp.AMQPConnectionError(amqp.ErrorCondition.SocketError), "amqp:socket-error"),
        (exceptions.ServiceBusError("no"), ""),
        (OSError(), ""),
    ],
)
def test_the_condition_is_that_of_the_service(error: Exception, condition: str) -> None:
    assert condition_of(error) == condition


@pytest.mark.parametrize(
    ("error", "lock", "session", "entity"),
    [
        (refusal(b"com.microsoft:message-lock-lost"), True, False, False),
        (refusal(b"com.microsoft:message-not-found"), True, False, False),
        (refusal(b"com.microsoft:session-lock-lost"), False, True, False),
        (refusal(b"amqp:not-found"), False, False, True),
        (refusal(b"com.microsoft:session-cannot-be-locked"), False, False, False),
        (exceptions.ServiceBusError("no"), False, False, False),
        (OSError(), False, False, False),
    ],
)
def test_a_lost_lock_a_lost_session_and_a_missing_queue_are_told_apart(error: Exception, lock: bool, session: bool, entity: bool) -> None:
    assert (is_lock_lost(error), is_session_lost(error), is_entity_missing(error)) == (lock, session, entity)
