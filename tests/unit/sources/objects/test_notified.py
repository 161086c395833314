"""Times of notifications."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headrace.sources.objects.notified import milliseconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-23T12:00:00.123Z", 1_795_435_200_123),
        ("2026-11-23T13:00:00+01:00", 1_795_435_200_000),
        ("2026-11-23T12:00:00", 1_795_435_200_000),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000),
        ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999),
    ],
)
def test_a_time_is_in_the_years_of_a_date(text: str, expected: int) -> None:
    assert milliseconds(text) == expected
    assert abs(datetime.fromtimestamp(expected / 1_000, UTC).timestamp() * 1_000 - expected) < 1


@pytest.mark.parametrize("text", [None, "", "today", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_other_times_are_left_out(text: str | None) -> None:
    assert milliseconds(text) is None
