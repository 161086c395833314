"""The declaration of a `Nats` upstream."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace import Nats
from headrace.errors import UpstreamError
from headrace.triggers.upstream import load_upstream

STARTS = ["earliest", "latest", 7, datetime(2026, 11, 23, 12, tzinfo=UTC), "2026-11-23T12:00:00+00:00"]


@pytest.mark.parametrize("start", STARTS)
def test_it_can_be_serialised(start: Any) -> None:
    upstream = Nats(["b", "a.>"], stream="ORDERS", durable="shop", start=start, decode="text", max_ack_pending=10_000)
    again = load_upstream(*upstream.serialize())
    assert again.serialize() == upstream.serialize()
    assert again.stream_key() == "nats:nats/ORDERS/shop/a.>,b"
    assert upstream.event_type == "headrace.nats.message"
    assert upstream.producer().upstream is upstream


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"stream": "a.b"}, "Invalid stream 'a.b'"),
        ({"stream": ""}, "Invalid stream ''"),
        ({"durable": "a b"}, "Invalid durable 'a b'"),
        ({"durable": "x" * 101}, "Invalid durable"),
        ({"connection": ""}, "Invalid connection ''"),
        ({"decode": "xml"}, "Invalid decode 'xml'"),
        ({"start": "soon"}, "Invalid start 'soon'"),
        ({"start": 0}, "Invalid start 0"),
        ({"start": True}, "Invalid start True"),
        ({"start": datetime(2026, 11, 23)}, "has no time zone"),
        ({"max_ack_pending": 0}, "Invalid max_ack_pending 0"),
        ({"max_ack_pending": True}, "Invalid max_ack_pending True"),
        ({"subjects": "a..b"}, "Invalid subject"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(UpstreamError, match=problem):
        Nats(**{"subjects": "a", "stream": "ORDERS", "durable": "shop"} | arguments)
