"""The registry of the counters of a stream."""

from __future__ import annotations

from dataclasses import fields

from headrace.core.ledger.counters import COUNTER_HELP, StreamCounters


def test_each_counter_has_help_and_a_unit_that_fits_its_name() -> None:
    for each in fields(StreamCounters):
        assert COUNTER_HELP[each.name].endswith(".")
        assert isinstance(each.default, float) == each.name.endswith("_seconds")
