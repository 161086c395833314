"""What a heartbeat says of the streams."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable
from dataclasses import asdict
from typing import Final

from headrace.streams.manager import SharedStreamManager
from headrace.streams.statistics import StreamStatistics
from headrace.wire.control.jobs import Blocked, Heartbeat
from headrace.wire.control.streams import StreamReport

MAX_LANES: Final = 2_000
"""Lanes in one heartbeat, shared by its streams; each stream reports at most 100, and one at least."""


def stream_report(statistics: StreamStatistics) -> StreamReport:
    """Return the wire form of a stream's statistics."""
    return StreamReport.model_validate(asdict(statistics))


async def heartbeat(hub: SharedStreamManager, keys: Collection[Hashable], blocked: Blocked | None = None) -> bytes:
    """Return the heartbeat about these streams, and what blocks a trigger process now. It lets others run after each stream."""
    most = max(1, min(100, MAX_LANES // max(1, len(keys))))
    reports: list[StreamReport] = []
    for key in keys:
        reports.append(stream_report(hub.statistics(key, most_lanes=most)))
        await asyncio.sleep(0)
    return Heartbeat(streams=reports, blocked=blocked).model_dump_json().encode()
