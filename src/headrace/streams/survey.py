"""Looks at a live stream and says what it has done and what it waits for."""

from __future__ import annotations

from heapq import nlargest
from itertools import islice
from typing import Final

from headrace.core.obligation import Entry, Lane
from headrace.streams.group import Group
from headrace.streams.statistics import LaneStatistics, StreamStatistics

MOST_LANES: Final = 100
MOST_UNREADABLE: Final = 20
MOST_CHARACTERS: Final = 500
STORE: Final = "the store"
"""Who holds what has been answered but is not yet durable."""


def survey(group: Group, now: float) -> StreamStatistics:
    """Return the statistics of a live stream at `now`."""
    ledger = group.ledger
    oldest = ledger.oldest_unresolved()
    unreadable = _unreadable(group)
    return StreamStatistics.of(
        group.name,
        group.state,
        ledger.counts,
        outstanding=ledger.outstanding,
        in_flight=group.in_flight,
        lanes_open=len(ledger.lanes),
        lanes=(*unreadable, *nlargest(MOST_LANES - len(unreadable), (_lane(group, lane) for lane in ledger.lanes.values()), key=_behind)),
        oldest_unresolved=None if oldest is None else max(0.0, now - oldest.published),
        held_by=None if oldest is None else _holder(group, oldest),
        left_behind=group.left_behind,
    )


def _unreadable(group: Group) -> list[LaneStatistics]:
    """Return what the upstream cannot read, as lanes that nothing was read of."""
    if group.producer is None:
        return []
    try:
        errors = {_text(name): _text(error) for name, error in islice(group.producer.get_errors().items(), MOST_UNREADABLE)}
    except Exception as error:
        errors = {"get_errors": f"It raised {type(error).__name__}."}
    return [LaneStatistics(name, None, None, None, None, 0, error) for name, error in errors.items()]


def _text(found: object) -> str:
    """Return text that can be sent, whatever a producer gave."""
    return str(found).encode("utf-8", "backslashreplace").decode()[:MOST_CHARACTERS]


def _lane(group: Group, lane: Lane) -> LaneStatistics:
    producer = group.producer
    end = None if producer is None else producer.get_lane_end(lane.key)
    committed = None if producer is None else producer.get_committed(lane.key)
    # Before this process has advanced a lane, it is as far as the upstream itself has it.
    advanced = committed if lane.advanced is None else lane.advanced
    return LaneStatistics(lane.name, lane.read, advanced, end, committed, lane.outstanding, lane.error)


def _behind(lane: LaneStatistics) -> tuple[int, int]:
    """How far the lane is behind: to its end where that is known, else to what has been read of it."""
    end = lane.end if lane.end is not None else lane.read
    return (end or 0) - (lane.advanced or 0), lane.outstanding


def _holder(group: Group, entry: Entry) -> str:
    busy = [reader.trigger_id for reader in group.ledger.roster.before(entry)]
    if not busy:
        return STORE
    return f"trigger {busy[0]}" if len(busy) == 1 else f"trigger {busy[0]} and {len(busy) - 1} more"
