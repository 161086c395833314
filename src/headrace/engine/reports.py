"""What a heartbeat says of the streams."""

from __future__ import annotations

from dataclasses import asdict

from headrace.streams.statistics import StreamStatistics
from headrace.wire.streams import StreamReport


def stream_report(statistics: StreamStatistics) -> StreamReport:
    """Return the wire form of a stream's statistics."""
    return StreamReport.model_validate(asdict(statistics))
