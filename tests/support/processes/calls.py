"""Calls of the execution API that many tests make."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.client.job import JobClient
from headrace.ports.triggerer_api import TriggererApi
from headrace.wire.calls import execution as calls
from headrace.wire.control.triggers import CleanupTriggers, FailureRecorded, LoadTriggers, TriggerFailure, TriggersLoaded
from headrace.wire.custody.backlog import BacklogPage, SettleBacklog, Settled
from headrace.wire.custody.receipts import FindLaneOffsets, LaneOffsets
from headrace.wire.pipelines.scope_leases import AcquireScope, ScopeLease


async def load_triggers(client: TriggererApi, capacity: int = 100) -> TriggersLoaded:
    """Acquire up to `capacity` triggers of the default queue."""
    return await client.request(calls.LOAD_TRIGGERS, LoadTriggers(capacity=capacity, queues=["default"]))


async def clean_up_triggers(client: TriggererApi, epochs: dict[int, int]) -> None:
    """Release leases."""
    await client.request(calls.CLEAN_UP_TRIGGERS, CleanupTriggers(trigger_ids=list(epochs), epochs=epochs))


async def report_failure(client: TriggererApi, trigger_id: int, failure: TriggerFailure) -> FailureRecorded:
    """Report the failure of a trigger."""
    return await client.request(calls.REPORT_FAILURE, failure, trigger_id=trigger_id)


async def get_backlog(client: TriggererApi, trigger_id: int, after: int, limit: int) -> BacklogPage:
    """Return a page of a trigger's backlog."""
    return await client.request(calls.GET_BACKLOG, None, query={"after": after, "limit": limit}, trigger_id=trigger_id)


async def settle_backlog(client: TriggererApi, trigger_id: int, epoch: int, settled: Iterable[Settled]) -> None:
    """Record the answers to raw events of a backlog."""
    await client.request(calls.SETTLE_BACKLOG, SettleBacklog(epoch=epoch, settled=list(settled)), trigger_id=trigger_id)


async def get_lane_offsets(client: TriggererApi, stream: str, lanes: list[str]) -> LaneOffsets:
    """Return the recorded offsets of lanes."""
    return await client.request(calls.GET_LANE_OFFSETS, FindLaneOffsets(stream=stream, lanes=lanes))


def acquire_scope(client: JobClient, scope: str, begin: int | None = 1) -> ScopeLease:
    """Acquire a scope."""
    return client.request(calls.ACQUIRE_SCOPE, AcquireScope(begin=begin), scope=scope)
