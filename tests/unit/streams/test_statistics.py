from __future__ import annotations

from headrace.core.ledger.obligations import StreamCounters
from headrace.streams.statistics import StreamStatistics


def test_the_counts_are_taken_over() -> None:
    statistics = StreamStatistics.of("s", "polling", StreamCounters(read=9, advanced=5, filtered=4, rejected=2, failed=1), outstanding=4)
    assert statistics == StreamStatistics("s", "polling", read=9, advanced=5, outstanding=4, rejected=2, filtered=4, failed=1)
