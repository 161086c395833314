from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.utils import parse_timestamp

from headrace.sources.kinesis.client import _parser_factory, _service_ms


@pytest.mark.parametrize("value", [1_763_900_000.123, 1_763_900_000, "2026-11-28T01:02:03Z", "1763900000"])
def test_times_are_those_of_the_library(value: Any) -> None:
    """Answers with temporary credentials are parsed with it too: their times are texts."""
    parsed = _parser_factory().create_parser("json")._timestamp_parser(value)
    assert parsed == parse_timestamp(value)
    assert parsed.tzinfo is not None


def test_the_time_of_the_service_is_that_of_its_answer() -> None:
    answer = {"ResponseMetadata": {"HTTPHeaders": {"date": "Sat, 28 Nov 2026 01:02:03 GMT"}}}
    assert _service_ms(answer) == int(datetime(2026, 11, 28, 1, 2, 3, tzinfo=UTC).timestamp() * 1_000)
    assert abs(_service_ms({}) - datetime.now(UTC).timestamp() * 1_000) < 60_000
