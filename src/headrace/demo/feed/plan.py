"""The whole feed, computed before the first line is written: the time, file and byte of each report.

    arrival of a report = the departure + the flight's own delay + the delay of the transmission

The transmission of a typical report takes minutes. Four in ten take hours, some take days: by then the aircraft has
departed again, and later reports have long arrived. Everything depends on the seed alone: an interrupted feed
resumes unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec

from headrace.demo.feed.flights import Leg, read_legs
from headrace.demo.feed.manifest import BadKind, BadLine, Manifest, Parameters
from headrace.demo.feed.seeded_random import SeededRandom

REPEATED: Final = 0.02
BROKEN_A_MONTH: Final = 25
FIELDLESS_A_MONTH: Final = 10
WITHHELD_A_MONTH: Final = 5
WITHHELD_BEFORE_DAY: Final = 20
"""Lost leaders are in the first part of a month, so that the lookback of their followers ends with the feed, not long after."""

HOUR: Final = 3600.0
STUCK: Final = 0.4
MIN_STUCK_SECONDS: Final = 2 * HOUR
MAX_STUCK_SECONDS: Final = 96 * HOUR


class Line(NamedTuple):
    """One line of the feed. `arrives` in epoch seconds; `bad` describes the defect of a broken line."""

    arrives: float
    station: str
    data: bytes
    bad: BadKind | None = None


class FeedFile(NamedTuple):
    """One file of the feed: the time slice that it ends, its name, and all its bytes."""

    slice: int
    name: str
    data: bytes


class FeedPlan(NamedTuple):
    """All files of the feed, in the order of writing, and their statistics."""

    manifest: Manifest
    files: list[FeedFile]


def plan_feed(parameters: Parameters, legs: list[Leg] | None = None) -> FeedPlan:
    """Compute the feed; the same parameters give the same bytes."""
    legs = read_legs(parameters.period) if legs is None else legs
    seeded_random = SeededRandom(parameters.seed)
    withheld = set(_withheld(seeded_random, legs))
    sent = [leg for leg in legs if leg.leg_id not in withheld]
    arrivals = {leg.leg_id: _arrival(seeded_random, leg) for leg in sent}
    repeats = [leg for leg in sent if seeded_random.number("repeat", leg.leg_id) < REPEATED]
    lines = [Line(arrivals[leg.leg_id], leg.origin, _encode(leg)) for leg in sent]
    lines.extend(Line(arrivals[leg.leg_id] + _repeat_after(seeded_random, leg), leg.origin, _encode(leg)) for leg in repeats)
    lines.extend(_bad_lines(seeded_random, sent, arrivals))
    lines.sort(key=itemgetter(0))
    files, bad = _files(parameters, lines)
    early = [
        arrivals[leg.previous_leg_id] - arrivals[leg.leg_id]
        for leg in sent
        if leg.previous_leg_id in arrivals and arrivals[leg.leg_id] < arrivals[leg.previous_leg_id]
    ]
    pace = parameters.seconds / (lines[-1].arrives - lines[0].arrives) if len(lines) > 1 else 0.0
    manifest = Manifest(
        parameters=parameters,
        legs=len(legs),
        withheld=sorted(withheld),
        repeated=len(repeats),
        early=len(early),
        max_early_seconds=round(max(early, default=0.0) * pace, 3),
        lines=len(lines),
        files=len(files),
        bad=bad,
    )
    return FeedPlan(manifest, files)


def _arrival(seeded_random: SeededRandom, leg: Leg) -> float:
    """Return the arrival time of the report of `leg`, in epoch seconds."""
    which, how_long = seeded_random.pair("arrival", leg.leg_id)
    stuck: float = MIN_STUCK_SECONDS * (MAX_STUCK_SECONDS / MIN_STUCK_SECONDS) ** how_long
    extra = stuck if which < STUCK else 60.0 + 0.5 * HOUR * how_long
    return leg.departed_at.timestamp() + 60.0 * max(leg.dep_delay or 0, 0) + extra


def _repeat_after(seeded_random: SeededRandom, leg: Leg) -> float:
    return 60.0 + 12 * HOUR * seeded_random.number("repeat after", leg.leg_id)


def _withheld(seeded_random: SeededRandom, legs: list[Leg]) -> Iterator[str]:
    """Choose the lost leaders: each has a follower, and neither its own leader nor its follower is chosen too."""
    followers = {leg.previous_leg_id: leg.leg_id for leg in legs if leg.previous_leg_id is not None}
    chosen: set[str] = set()
    for month in _months(legs):
        candidates = [leg for leg in month if leg.leg_id in followers and leg.scheduled.day < WITHHELD_BEFORE_DAY]
        ranked = nsmallest(4 * WITHHELD_A_MONTH, candidates, key=lambda leg: seeded_random.number("withheld", leg.leg_id))
        picked = 0
        for leg in ranked:
            if picked < WITHHELD_A_MONTH and leg.previous_leg_id not in chosen and followers[leg.leg_id] not in chosen:
                chosen.add(leg.leg_id)
                picked += 1
                yield leg.leg_id


def _bad_lines(seeded_random: SeededRandom, legs: list[Leg], arrivals: dict[str, float]) -> Iterator[Line]:
    """Create the broken lines, each from a real report, and with that one's arrival time."""
    for month in _months(legs):
        victims = nsmallest(BROKEN_A_MONTH + FIELDLESS_A_MONTH, month, key=lambda leg: seeded_random.number("bad", leg.leg_id))
        for number, leg in enumerate(victims):
            if number < BROKEN_A_MONTH:
                yield Line(arrivals[leg.leg_id], leg.origin, _broken(number, leg), "malformed")
            else:
                yield Line(arrivals[leg.leg_id], leg.origin, _fieldless(number, leg), "missing_field")


def _broken(number: int, leg: Leg) -> bytes:
    whole = _encode(leg)
    match number % 4:
        case 0:
            return whole[: len(whole) // 2]
        case 1:
            return whole.replace(b'":', b'"', 1)
        case 2:
            return whole.replace(b"leg_id", b"leg_\xff\xfe", 1)
        case _:
            return b"*** LINE NOISE *** " + whole[:40]


def _fieldless(number: int, leg: Leg) -> bytes:
    fields: dict[str, object] = msgspec.to_builtins(leg)
    match number % 3:
        case 0:
            del fields["leg_id"]
        case 1:
            fields["departed_at"] = None
        case _:
            del fields["tail_number"]
    return msgspec.json.encode(fields)


def _files(parameters: Parameters, lines: list[Line]) -> tuple[list[FeedFile], list[BadLine]]:
    """Cut the lines into one file for each station and slice of time."""
    if not lines:
        return [], []
    first = lines[0].arrives
    width = max(lines[-1].arrives - first, 1.0) / parameters.slices
    contents: dict[tuple[int, str], bytearray] = {}
    bad: list[BadLine] = []
    for line in lines:
        number = min(int((line.arrives - first) / width), parameters.slices - 1)
        content = contents.setdefault((number, line.station), bytearray())
        if line.bad is not None:
            bad.append(BadLine(_file_name(parameters, number, line.station), len(content), line.bad))
        content += line.data
        content += b"\n"
    files = [
        FeedFile(number, _file_name(parameters, number, station), bytes(contents[number, station])) for number, station in sorted(contents)
    ]
    return files, bad


def _file_name(parameters: Parameters, number: int, station: str) -> str:
    return f"{parameters.period}-{number:05}-{station}.jsonl"


def _months(legs: list[Leg]) -> Iterator[list[Leg]]:
    months: dict[str, list[Leg]] = {}
    for leg in legs:
        months.setdefault(leg.leg_id[:7], []).append(leg)
    yield from months.values()


_ENCODER: Final = msgspec.json.Encoder()


def _encode(leg: Leg) -> bytes:
    return _ENCODER.encode(leg)
