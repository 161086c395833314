"""The report of a triggerer about its streams."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from headrace.core.ledger.counters import StreamCounters
from headrace.wire.control.streams import StreamReport


def report(counters: str) -> StreamReport:
    return StreamReport.model_validate_json(f'{{"stream": "s", "state": "polling", "counters": {counters}}}')


def test_unknown_counters_are_ignored_and_missing_counters_are_zero() -> None:
    assert report('{"read": 3, "invented_later": 5, "ack_seconds": 0.5}').counters == StreamCounters(read=3, ack_seconds=0.5)


@pytest.mark.parametrize("counters", ['{"read": "many"}', '{"read": 1.5}', '{"ack_seconds": NaN}', '{"ack_seconds": 1e999}', "[1]", "null"])
def test_a_counter_that_is_not_a_finite_number_is_rejected(counters: str) -> None:
    with pytest.raises(ValidationError):
        report(counters)


def test_reports_do_not_share_default_counters() -> None:
    first, second = StreamReport(stream="a", state="polling"), StreamReport(stream="b", state="polling")
    first.counters.read = 5
    assert second.counters.read == 0
