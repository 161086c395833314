from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.values.moments import micros, moment


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_moment_survives_the_database(given_moment: datetime) -> None:
    assert moment(micros(given_moment)) == given_moment


def test_a_moment_in_another_zone_is_equal_after_conversion() -> None:
    there = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    assert moment(micros(there)) == there
