"""The target of a seek as a text: valid ones, and what the error says about the others."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headrace.errors import UsageError
from headrace.sources.seeks.target import MAX_POSITION, LanePoint, SeekTarget, parse_target

TIME = datetime(2026, 11, 24, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0", 0),
        ("20261124", 20261124),
        (str(MAX_POSITION), MAX_POSITION),
        ("1763900000000-5", 1763900000000 << 20 | 5),
        ("2026-11-24T10:00:00Z", TIME),
        ("2026-11-24T11:00+01:00", TIME),
    ],
)
def test_a_point_is_that_of_all_lanes(text: str, point: LanePoint) -> None:
    assert parse_target(text) == SeekTarget(point, {})


def test_lanes_have_points_of_their_own() -> None:
    target = parse_target("orders/0=12, orders/1@1f0c=latest,a=b=earliest,c=2026-11-24T10:00:00Z")
    assert target == SeekTarget(None, {"orders/0": 12, "orders/1@1f0c": "latest", "a=b": "earliest", "c": TIME})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not a target"),
        ("Latest", "is not a target"),
        ("-1", "is not a target"),
        ("+1", "is not a target"),
        ("1.5", "is not a target"),
        ("١٢", "is not a target"),
        ("2026-13-01T00:00Z", "is not a target"),
        ("2026-11-24T10:00", "no time zone"),
        ("2026-11-24", "no time zone"),
        ("0001-01-01T00:00+14:00", "before 1970"),
        ("9999-12-31T23:59:59-05:00", "after 9999"),
        (str(MAX_POSITION + 1), "larger than any position"),
        ("9" * 10_000, "larger than any position"),
        ("a=1,b", "'b' is not LANE=TARGET"),
        ("=1", "'=1' is not LANE=TARGET"),
        ("a=1,", "'' is not LANE=TARGET"),
        ("a=", "'' is not a target"),
        ("a=1,a=2", "names the lane 'a' twice"),
    ],
)
def test_what_is_no_target_is_named(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_target(text)
