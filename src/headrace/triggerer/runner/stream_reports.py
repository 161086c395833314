"""Build heartbeats with reports of the streams."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable
from dataclasses import asdict
from typing import Final

from headrace.streams.manager import SharedStreamManager
from headrace.streams.pattern_sampler import PatternSample
from headrace.streams.statistics import StreamStatistics
from headrace.triggerer.runner.dead_letter_copier import DeadLetterCopiers
from headrace.wire.control.jobs import MAX_WATCH_SAMPLES, Blocked, Heartbeat
from headrace.wire.control.streams import LeafFailures, StreamReport, WatchSample

MAX_LANES: Final = 2_000
"""Lanes in one heartbeat, divided among its streams. Each stream reports between 1 and 100."""


def stream_report(statistics: StreamStatistics) -> StreamReport:
    """Return the wire form of a stream's statistics."""
    return StreamReport.model_validate(asdict(statistics))


async def heartbeat(
    manager: SharedStreamManager,
    keys: Collection[Hashable],
    blocked: Blocked | None = None,
    copiers: DeadLetterCopiers | None = None,
) -> bytes:
    """Return the heartbeat (JSON) with reports of these streams, samples of watches and a current block.

    Yields to the loop after each stream.
    """
    max_lanes = max(1, min(100, MAX_LANES // max(1, len(keys))))
    reports: list[StreamReport] = []
    for key in keys:
        report = stream_report(manager.statistics(key, max_lanes=max_lanes))
        reports.append(report if copiers is None else report.model_copy(update={"copies": copiers.report(report.stream)}))
        await asyncio.sleep(0)
    samples = [_watch_sample(sample) for sample in manager.pattern_samples(MAX_WATCH_SAMPLES)]
    return Heartbeat(streams=reports, blocked=blocked, watches=samples).model_dump_json().encode()


def _watch_sample(sample: PatternSample) -> WatchSample:
    leaves = [LeafFailures(path=path, failed=failed) for path, failed in sample.paths]
    return WatchSample(trigger_id=sample.trigger_id, samples=sample.samples, matched=sample.matched, leaves=leaves)
