"""Results of acknowledgements with exactly-once delivery, which the fake does not have."""

from __future__ import annotations

from typing import Any

import pytest
from google.api_core import exceptions as untyped_exceptions
from google.rpc import error_details_pb2

from headrace.errors import StreamError, UpstreamError
from headrace.sources.leases.leases import Lease
from headrace.sources.pubsub.service_errors import described, failures

exceptions: Any = untyped_exceptions  # its classes have no types
LEASES = [Lease(id, f"receipt-{id}", None, "orders", 1, 0) for id in "abc"]


def test_a_failure_of_single_messages_is_retriable_or_permanent_by_its_reason() -> None:
    info = error_details_pb2.ErrorInfo(
        metadata={"receipt-a": "PERMANENT_FAILURE_INVALID_ACK_ID", "receipt-b": "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE"}
    )
    error = exceptions.InvalidArgument("Some acknowledgement ids failed", error_info=info)
    results = failures("The messages cannot be acknowledged", LEASES, error)
    assert results[LEASES[0]] == "PERMANENT_FAILURE_INVALID_ACK_ID"
    assert isinstance(results[LEASES[1]], StreamError)
    assert isinstance(results[LEASES[2]], StreamError)  # not named: requested again


def test_an_error_that_names_no_message_is_raised() -> None:
    with pytest.raises(UpstreamError, match="not allowed") as raised:
        failures("The messages cannot be acknowledged", LEASES, exceptions.PermissionDenied("not allowed"))
    assert "roles/pubsub.subscriber" in str(raised.value.hint)


def test_a_service_that_is_away_may_answer_later() -> None:
    error = described("Subscription 'orders' cannot be read", exceptions.ServiceUnavailable("failed to connect"))
    assert isinstance(error, StreamError)
    assert "does not answer" in str(error)
