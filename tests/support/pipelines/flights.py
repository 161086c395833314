"""The demo's flights for tests: real ones, few, and what a right run makes of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

from headrace.demo.feed.flights import Leg, read_legs
from headrace.demo.feed.manifest import Manifest
from headrace.demo.feed.plan import FeedPlan, plan_feed
from headrace.demo.feed.process import parameters
from headrace.demo.report.tables import BoardHour, Departure
from headrace.sources.files.names import new_lane
from headrace.wire.status.status import DeadLetterSummary

FEW = 3_000


@cache
def january() -> tuple[Leg, ...]:
    return tuple(read_legs("january"))


@cache
def january_plan() -> FeedPlan:
    return plan_feed(parameters(7, "january"), list(january()))


@cache
def few_plan() -> FeedPlan:
    return plan_feed(parameters(7, "january", 1.0), list(january()[:FEW]))


@dataclass(frozen=True)
class Outcome:
    """All that the check looks at."""

    manifest: Manifest
    legs: list[Leg]
    departures: list[Departure]
    board: list[BoardHour]
    dead_letters: list[DeadLetterSummary]


def right_outcome() -> Outcome:
    """Return what a run without faults leaves behind, of the first few departures."""
    legs = list(january()[:FEW])
    manifest = few_plan().manifest
    withheld = set(manifest.withheld)
    sent = sorted((leg for leg in legs if leg.leg_id not in withheld), key=lambda leg: (leg.departed_at, leg.scheduled))
    delays = {leg.leg_id: leg.dep_delay for leg in sent}
    departures = [departure(place, leg, delays, withheld) for place, leg in enumerate(sent)]
    return Outcome(manifest, legs, departures, board_of(sent), [dead_letter(manifest, n) for n in range(len(manifest.bad))])


def departure(place: int, leg: Leg, delays: dict[str, int | None], withheld: set[str]) -> Departure:
    previous = delays.get(leg.previous_leg_id or "")
    knocked_on = None if previous is None or leg.dep_delay is None else max(0, min(previous, leg.dep_delay))
    mark = "lost" if leg.previous_leg_id in withheld else None
    return Departure(
        leg.leg_id, leg.previous_leg_id, leg.tail_number, leg.carrier, leg.dep_delay, previous, knocked_on, place, mark, place + 1
    )


def board_of(legs: Iterable[Leg]) -> list[BoardHour]:
    """Return the sums of each hour of each airport."""
    sums: dict[tuple[datetime, str], BoardHour] = {}
    for leg in legs:
        one = board_hour(leg)
        known = sums.get((one.hour, one.origin))
        added = one if known is None else BoardHour(one.hour, one.origin, *map(sum, zip(known[2:], one[2:], strict=True)))
        sums[one.hour, one.origin] = added
    return list(sums.values())


def board_hour(leg: Leg) -> BoardHour:
    hour = leg.scheduled.replace(minute=0)
    return BoardHour(hour, leg.origin, 1, int(leg.cancelled), int((leg.dep_delay or 0) >= 15), leg.dep_delay or 0)


def dead_letter(manifest: Manifest, number: int) -> DeadLetterSummary:
    bad = manifest.bad[number]
    return DeadLetterSummary(
        id=str(number),
        kind=bad.kind,
        reason="Not what it should be.",
        stream="directory:feed",
        lane=new_lane(bad.file),
        position=bad.offset,
        triggers=[],
        attempts=1,
        received=datetime(2026, 1, 1, tzinfo=UTC),
    )
