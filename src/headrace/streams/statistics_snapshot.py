"""Looks at a live stream and says what it has done and what it waits for.

There may be 10,000 open lanes, and what a producer says of them is users' code: each survey asks it of a slice of the lanes, for a limited
time, and goes on from there the next time. For the others it has what was said last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
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

MOST_LANES: Final = 100
SLICE: Final = 500
"""Lanes that a producer is asked about in one survey."""
MAX_SECONDS: Final = 0.02
"""For which it is asked in one survey."""
MAX_UNREADABLE: Final = 20
"""What the upstream cannot read, of which so much is reported."""
MAX_RETRIES: Final = 5
"""Raw events that wait to be tried again, of which so many are reported: those that come first."""
MAX_ERROR_CHARS: Final = 300
STORE: Final = "the store"
"""Who holds what has been answered but is not yet durable."""


class WrongPosition(Exception):
    """A producer gave no position where it was asked for one."""


def survey(group: SharedStream, now: float, most_lanes: int = MOST_LANES) -> StreamStatistics:
    """Return the statistics of a live stream at `now`, with so many of its lanes: those furthest behind."""
    ledger = group.ledger
    if group.producer is not None:
        _look(group, group.producer)
    oldest = ledger.oldest_unresolved()
    retries = group.retries()
    errors = [] if group.producer is None else _unreadable(group.producer)
    worst = nlargest(max(0, most_lanes - len(errors)), ledger.lanes.values(), key=_behind)
    return StreamStatistics.of(
        group.name,
        group.state,
        ledger.counts,
        outstanding=ledger.outstanding,
        in_flight=group.in_flight,
        lanes_open=len(ledger.lanes),
        lanes=(*errors, *map(_statistics, worst)),
        oldest_unresolved=None if oldest is None else max(0.0, now - oldest.published),
        held_by=None if oldest is None else _holder(group, oldest),
        oldest_lane=None if oldest is None else oldest.lane.name,
        left_behind=group.left_behind,
        lanes_retrying=len(retries),
        retrying=tuple(_retry(*one, now) for one in nsmallest(MAX_RETRIES, retries, key=lambda one: one[1].due)),
    )


def _unreadable(producer: SharedStreamProducer) -> list[LaneStatistics]:
    """Return what the upstream cannot read, as lanes that nothing was read of."""
    try:
        errors = unreadable(producer)
    except BaseException as error:  # a producer may raise anything, also SystemExit
        errors = {"get_errors": describe_error(error)}
    return [LaneStatistics(name, None, None, None, None, 0, error[:MAX_TEXT_CHARS]) for name, error in errors.items()]


def unreadable(producer: SharedStreamProducer) -> dict[str, str]:
    """Return why parts of the upstream cannot be read, as text. Raises what the producer raises."""
    return {lane_name(name): describe_text(error) for name, error in islice(producer.get_errors().items(), MAX_UNREADABLE)}


def asked_position(method: Callable[[Hashable], int | None], name: str, lane: Hashable) -> int | None:
    """Return the position that a producer's `method` gives for a lane. Raises what that raises, and `WrongPosition`."""
    position = method(lane)
    if position is None or (type(position) is int and position.bit_length() < 64):
        return position
    raise WrongPosition(f"{name} returned {describe_value(position)[:100]}: it must be an integer of 64 bits, or None.")


def _look(group: SharedStream, producer: SharedStreamProducer) -> None:
    """Ask the producer where the lanes of the next slice end and are committed."""
    lanes, until = group.ledger.lanes, perf_counter() + MAX_SECONDS
    start = group.surveyed % max(1, len(lanes))
    seen = 0
    for lane in tuple(islice(chain(islice(lanes.values(), start, None), islice(lanes.values(), start)), SLICE)):
        lane.trouble = None
        lane.end = _asked(lane, "get_lane_end", producer.get_lane_end)
        lane.committed = _asked(lane, "get_committed", producer.get_committed)
        seen += 1
        if perf_counter() > until:
            break
    group.surveyed = start + seen


def _asked(lane: Lane, name: str, method: Callable[[Hashable], int | None]) -> int | None:
    """Return the position that a producer gives for a lane; what it raises, and what is no position, is the lane's trouble."""
    try:
        return asked_position(method, name, lane.key)
    except WrongPosition as error:
        lane.trouble = str(error)
    except BaseException as error:  # a producer may raise anything, also SystemExit
        lane.trouble = f"{name}: {describe_error(error)}"
    return None


def _statistics(lane: Lane) -> LaneStatistics:
    # Before this process has advanced a lane, it is as far as the upstream itself has it.
    advanced = lane.committed if lane.advanced is None else lane.advanced
    return LaneStatistics(lane.name, lane.read, advanced, lane.end, lane.committed, lane.outstanding, lane.error or lane.trouble)


def _retry(trigger_id: int, retry: Retry, now: float) -> RetryStatistics:
    error = cut_text(retry.reason, MAX_ERROR_CHARS)
    return RetryStatistics(trigger_id, retry.lane, retry.position, retry.attempts, max(0.0, retry.due - now), error)


def _behind(lane: Lane) -> tuple[int, int]:
    """How far the lane is behind: to its end where that is known, else to what has been read of it."""
    end = lane.end if lane.end is not None else lane.read
    advanced = lane.committed if lane.advanced is None else lane.advanced
    return (end or 0) - (advanced or 0), lane.outstanding


def _holder(group: SharedStream, entry: PendingEvent) -> str:
    busy = [reader.trigger_id for reader in group.ledger.roster.before(entry)]
    if not busy:
        return STORE
    return f"trigger {busy[0]}" if len(busy) == 1 else f"trigger {busy[0]} and {len(busy) - 1} more"
