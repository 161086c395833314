"""The statistics of a live stream.

A stream may have 10,000 open lanes, and the producer's positions of a lane come from users' code. So each snapshot requests the positions
of a slice of the lanes, for a limited time, and the next snapshot continues from there. Other lanes have their previous positions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from heapq import nlargest, nsmallest
from itertools import chain, islice
from time import perf_counter
from typing import Final

from headrace.core.ledger.obligations import Lane, PendingEvent
from headrace.core.values.text import MAX_TEXT_CHARS, cut_text, describe_error, describe_text, describe_value, lane_name
from headrace.streams.shared_stream import SharedStream
from headrace.streams.statistics import LaneStatistics, RetryStatistics, StreamStatistics
from headrace.streams.subscribers.failure_counter import Retry
from headrace.triggers.upstream import SharedStreamProducer

MAX_LANES: Final = 100
SLICE: Final = 500
"""Lanes whose positions one snapshot requests."""
MAX_SECONDS: Final = 0.02
"""Time limit of the requests of one snapshot."""
MAX_UNREADABLE: Final = 20
"""Limit of reported errors of the upstream."""
MAX_RETRIES: Final = 5
"""Limit of reported raw events that wait for a retry; the first due are reported."""
MAX_ERROR_CHARS: Final = 300
STORE: Final = "the store"
"""The holder of answered raw events that are not durable yet."""


class WrongPosition(Exception):
    """A producer returned an invalid position."""


def snapshot_statistics(stream: SharedStream, now: float, max_lanes: int = MAX_LANES) -> StreamStatistics:
    """Return the statistics of a live stream at `now`, with at most `max_lanes` lanes, those furthest behind."""
    ledger = stream.ledger
    if stream.producer is not None:
        _update_positions(stream, stream.producer)
    oldest = ledger.oldest_unresolved()
    retries = stream.retries()
    errors = [] if stream.producer is None else _unreadable(stream.producer)
    unread = None if stream.producer is None else _unread(stream.producer, errors)
    worst = nlargest(max(0, max_lanes - len(errors)), ledger.lanes.values(), key=_behind)
    return StreamStatistics(
        stream.name,
        stream.state,
        replace(ledger.counters),
        outstanding=ledger.outstanding,
        in_flight=stream.in_flight,
        lanes_open=len(ledger.lanes),
        lanes=(*errors, *map(_statistics, worst)),
        oldest_unresolved=None if oldest is None else max(0.0, now - oldest.published),
        held_by=None if oldest is None else _holder(stream, oldest),
        oldest_lane=None if oldest is None else oldest.lane.name,
        unread=unread,
        left_behind=stream.left_behind,
        lanes_retrying=len(retries),
        retrying=tuple(_retry(*one, now) for one in nsmallest(MAX_RETRIES, retries, key=lambda one: one[1].due)),
    )


def _unreadable(producer: SharedStreamProducer) -> list[LaneStatistics]:
    """Return the errors of the upstream as lanes without positions."""
    try:
        errors = unreadable(producer)
    except BaseException as error:  # a producer may raise anything, also SystemExit
        errors = {"get_errors": describe_error(error)}
    return [LaneStatistics(name, None, None, None, None, 0, error[:MAX_TEXT_CHARS]) for name, error in errors.items()]


def _unread(producer: SharedStreamProducer, errors: list[LaneStatistics]) -> int | None:
    """Return the number of unread messages of the upstream, or None. Add the error to `errors` if the producer raises one."""
    try:
        return checked_unread(producer)
    except WrongPosition as error:
        text = str(error)
    except BaseException as error:  # a producer may raise anything, also SystemExit
        text = describe_error(error)
    errors.append(LaneStatistics("get_unread", None, None, None, None, 0, text[:MAX_TEXT_CHARS]))
    return None


def checked_unread(producer: SharedStreamProducer) -> int | None:
    """Return the number of unread messages of the upstream, or None if it is unknown. Raises the producer's errors, and `WrongPosition`."""
    unread = producer.get_unread()
    if unread is None or (type(unread) is int and 0 <= unread < 2**63):
        return unread
    raise WrongPosition(f"get_unread returned {describe_value(unread)[:100]}: it must be an integer from 0 on, or None.")


def unreadable(producer: SharedStreamProducer) -> dict[str, str]:
    """Return the errors of unreadable parts of the upstream, by name. Raises the errors of the producer."""
    return {lane_name(name): describe_text(error) for name, error in islice(producer.get_errors().items(), MAX_UNREADABLE)}


def checked_position(method: Callable[[Hashable], int | None], name: str, lane: Hashable) -> int | None:
    """Return the position of a lane that a producer's `method` returns. Raises its errors, and `WrongPosition`."""
    position = method(lane)
    if position is None or (type(position) is int and position.bit_length() < 64):
        return position
    raise WrongPosition(f"{name} returned {describe_value(position)[:100]}: it must be an integer of 64 bits, or None.")


def _update_positions(stream: SharedStream, producer: SharedStreamProducer) -> None:
    """Update the end and committed positions of the next slice of lanes."""
    lanes, until = stream.ledger.lanes, perf_counter() + MAX_SECONDS
    start = stream.next_lane % max(1, len(lanes))
    seen = 0
    for lane in tuple(islice(chain(islice(lanes.values(), start, None), islice(lanes.values(), start)), SLICE)):
        lane.position_error = None
        lane.end = _position_or_none(lane, "get_lane_end", producer.get_lane_end)
        lane.committed = _position_or_none(lane, "get_committed", producer.get_committed)
        seen += 1
        if perf_counter() > until:
            break
    stream.next_lane = start + seen


def _position_or_none(lane: Lane, name: str, method: Callable[[Hashable], int | None]) -> int | None:
    """Return the position of a lane, or None with an error in `position_error` if the producer raises or returns no valid one."""
    try:
        return checked_position(method, name, lane.key)
    except WrongPosition as error:
        lane.position_error = str(error)
    except BaseException as error:  # a producer may raise anything, also SystemExit
        lane.position_error = f"{name}: {describe_error(error)}"
    return None


def _statistics(lane: Lane) -> LaneStatistics:
    # Until this process has advanced a lane, the committed position of the upstream counts.
    advanced = lane.committed if lane.advanced is None else lane.advanced
    return LaneStatistics(lane.name, lane.read, advanced, lane.end, lane.committed, lane.outstanding, lane.error or lane.position_error)


def _retry(trigger_id: int, retry: Retry, now: float) -> RetryStatistics:
    error = cut_text(retry.reason, MAX_ERROR_CHARS)
    return RetryStatistics(trigger_id, retry.lane, retry.position, retry.attempts, max(0.0, retry.due - now), error)


def _behind(lane: Lane) -> tuple[int, int]:
    """The lag of the lane: to its end if that is known, else to the last position read; then its outstanding raw events."""
    end = lane.end if lane.end is not None else lane.read
    advanced = lane.committed if lane.advanced is None else lane.advanced
    return (end or 0) - (advanced or 0), lane.outstanding


def _holder(stream: SharedStream, entry: PendingEvent) -> str:
    busy = [reader.trigger_id for reader in stream.ledger.subscribers.before(entry)]
    if not busy:
        return STORE
    return f"trigger {busy[0]}" if len(busy) == 1 else f"trigger {busy[0]} and {len(busy) - 1} more"
