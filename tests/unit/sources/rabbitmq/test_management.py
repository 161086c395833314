"""Limits of queues by which messages can be lost."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import UpstreamError
from headrace.sources.rabbitmq.management import warnings_of

QUORUM = {"type": "quorum", "arguments": {"x-queue-type": "quorum"}}


@pytest.mark.parametrize(
    ("details", "version", "expected"),
    [
        ({"type": "classic"}, "4.0.5", []),
        (QUORUM, "3.10.8", []),
        (QUORUM, "4.0.5", ["messages dropped after 20 deliveries"]),
        (QUORUM | {"arguments": {"x-delivery-limit": -1}}, "4.0.5", []),
        (QUORUM | {"arguments": {"x-delivery-limit": 3}}, "3.10.8", ["messages dropped after 3 deliveries"]),
        (
            QUORUM | {"effective_policy_definition": {"delivery-limit": 5, "dead-letter-exchange": "dead"}},
            "3.10.8",
            ["messages dead-lettered after 5 deliveries"],
        ),
        (QUORUM | {"effective_policy_definition": []}, "3.10.8", []),
        ({"type": "classic", "arguments": {"x-message-ttl": 1000}}, "3.10.8", ["messages dropped when they expire"]),
        ({"type": "classic", "arguments": {"x-max-length": 10}}, "3.10.8", ["oldest messages dropped"]),
        ({"type": "classic", "arguments": {"x-max-length": 10, "x-overflow": "reject-publish"}}, "3.10.8", []),
    ],
)
def test_limits_are_named(details: dict[str, Any], version: str, expected: list[str]) -> None:
    warnings = warnings_of("orders", details, version)
    assert len(warnings) == len(expected)
    for warning, beginning in zip(warnings, expected, strict=True):
        assert warning.startswith(beginning)


def test_a_stream_is_refused() -> None:
    with pytest.raises(UpstreamError, match="'orders' is a stream"):
        warnings_of("orders", {"type": "stream"}, "3.10.8")
