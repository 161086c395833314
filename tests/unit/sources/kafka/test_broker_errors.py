from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from headrace.errors import StreamError, UpstreamError
from headrace.sources.kafka.broker_errors import (
    AUTHORITY_HINT,
    CERTIFICATE_HINT,
    CLIENT_HINT,
    ENDPOINT_AUTHORITY_HINT,
    ENDPOINT_AWAY_HINT,
    LOGIN_HINT,
    PROTOCOL_HINT,
    ConnectionErrors,
    client_logger,
    described,
    rejection_hint,
    rejects_credentials,
)

TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)
CLOSED = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token: "


@pytest.mark.parametrize(
    ("code", "text", "hint"),
    [
        (KafkaError._AUTHENTICATION, "a/1: SASL authentication error: Authentication failed: Invalid username or password", LOGIN_HINT),
        (KafkaError._AUTHENTICATION, 'a/1: SASL authentication error: {"status":"invalid_token"}', CLIENT_HINT),
        (KafkaError._AUTHENTICATION, f'{NO_TOKEN}{{"error": "invalid_client"}}', CLIENT_HINT),
        (KafkaError._AUTHENTICATION, f"{NO_TOKEN}SSL peer certificate or SSH remote key was not OK", ENDPOINT_AUTHORITY_HINT),
        (KafkaError._AUTHENTICATION, f"{NO_TOKEN}Failed to connect to login.example:443 after 0 ms", None),
        (KafkaError._AUTHENTICATION, f"{NO_TOKEN}Could not resolve host: login.example", None),
        (KafkaError._AUTHENTICATION, "a/1: SASL PLAIN mechanism handshake failed: Local: Broker transport failure", None),
        (KafkaError._AUTHENTICATION, "a/1: SASL PLAIN mechanism handshake failed: Broker: Request not valid in current", PROTOCOL_HINT),
        (KafkaError._TRANSPORT, "a/1: error:0A000086:SSL routines::certificate verify failed", AUTHORITY_HINT),
        (KafkaError._TRANSPORT, "a/1: Receive failed: ssl/tls alert bad certificate: SSL alert number 42 (after 0ms)", CERTIFICATE_HINT),
        (KafkaError._TRANSPORT, "a/1: Receive failed: certificate required: SSL alert number 116 (after 0ms)", CERTIFICATE_HINT),
        (KafkaError._TRANSPORT, "a/1: Receive failed: internal error: SSL alert number 80 (after 0ms)", None),
        (KafkaError._TRANSPORT, "a/1: Connect to ipv4#10.0.0.1:9092 failed: Connection refused", None),
    ],
)
def test_errors_that_another_attempt_does_not_change_have_a_hint(code: int, text: str, hint: str | None) -> None:
    error = KafkaError(code, text)
    assert rejection_hint(error) == hint
    assert isinstance(described("It failed", error), UpstreamError if hint else StreamError)


def test_a_token_endpoint_that_does_not_answer_is_no_rejection() -> None:
    error = described("It failed", KafkaError(KafkaError._AUTHENTICATION, f"{NO_TOKEN}Failed to connect to login.example"))
    assert isinstance(error, StreamError)
    assert error.hint == ENDPOINT_AWAY_HINT


def test_only_rejected_credentials_end_a_stream_that_reads() -> None:
    assert rejects_credentials(KafkaError(KafkaError._AUTHENTICATION, "a/1: SASL authentication error: Authentication failed"))
    assert not rejects_credentials(KafkaError(KafkaError._AUTHENTICATION, f'{NO_TOKEN}{{"error": "invalid_client"}}'))
    assert not rejects_credentials(KafkaError(KafkaError._TRANSPORT, "a/1: Disconnected (after 4ms in state SSL_HANDSHAKE)"))


def test_the_cause_of_a_request_without_an_answer_is_that_of_its_connections() -> None:
    errors = ConnectionErrors()
    assert isinstance(errors.described("It failed", TIMED_OUT), StreamError)
    errors.add(CLOSED)
    closed = errors.described("It failed", TIMED_OUT)
    assert isinstance(closed, UpstreamError)
    assert closed.hint == PROTOCOL_HINT
    errors.add(KafkaError(KafkaError._TRANSPORT, "a/1: Connect failed: Connection refused"))
    refused = errors.described("It failed", TIMED_OUT)
    assert isinstance(refused, StreamError)
    assert "Connection refused" in str(refused)
    errors.add(KafkaError(KafkaError._TRANSPORT, "a/1: Disconnected: closed by peer: connecting to a PLAINTEXT broker listener?"))
    assert errors.described("It failed", TIMED_OUT).hint == PROTOCOL_HINT
    errors.add(
        KafkaError(KafkaError._TRANSPORT, "ssl://a/1: Send failed: error:80000020:system library::Broken pipe: tls_retry_write_records")
    )
    assert "close the connection" in str(errors.described("It failed", TIMED_OUT))
    errors.add(KafkaError(KafkaError._AUTHENTICATION, "a/1: SASL authentication error: Authentication failed"))
    errors.add(CLOSED)
    assert errors.described("It failed", TIMED_OUT).hint == LOGIN_HINT
    errors.clear()
    assert isinstance(errors.described("It failed", TIMED_OUT), StreamError)


def test_the_answer_to_the_request_comes_before_errors_of_connections() -> None:
    errors = ConnectionErrors()
    errors.add(KafkaError(KafkaError._AUTHENTICATION, "a/1: SASL authentication error: Authentication failed"))
    forbidden = errors.described("It failed", KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "Not authorized"))
    assert forbidden.hint == "Allow this user READ on the group."


def test_failed_attempts_to_connect_are_logged_for_debugging_only(caplog: pytest.LogCaptureFixture) -> None:
    logger = client_logger()
    for level in (logging.INFO, logging.DEBUG):
        with caplog.at_level(level):
            logger.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#producer-1", "a/1: Connection refused")
            logger.log(logging.WARNING, "%s [%s] %s", "MAXPOLL", "rdkafka#consumer-1", "exceeded")
    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == ["MAXPOLL", "FAIL", "MAXPOLL"]
