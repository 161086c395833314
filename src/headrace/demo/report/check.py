"""The independent check: compute the expected result from the source, the feed's manifest, and the tables on the
disk.

The check does not use the engine's state, except for the dead letters, which are its response to the broken lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from headrace.demo.feed.flights import Leg, read_legs
from headrace.demo.feed.manifest import Manifest
from headrace.demo.feed.writer import FEED_FOLDER, done_files
from headrace.demo.report.tables import BoardHour, Departure, read_board, read_departures
from headrace.errors import ResourceError
from headrace.sources.files.names import file_of
from headrace.wire.status.status import DeadLetterSummary

EXAMPLES: Final = 3
DELAYED: Final = 15


class Point(NamedTuple):
    """One check: its name, its outcome, the numbers of checked and failed items, and up to three failed ones."""

    what: str
    looked_at: int
    failed: int
    examples: list[str]

    @property
    def ok(self) -> bool:
        """Return whether the check succeeded."""
        return self.failed == 0


class CheckResult(NamedTuple):
    """The results of all checks."""

    points: list[Point]

    @property
    def ok(self) -> bool:
        """Return whether all checks succeeded."""
        return all(point.ok for point in self.points)


def check(home: Path, dead_letters: Sequence[DeadLetterSummary], tables: Path | None = None) -> CheckResult:
    """Check the demo in `home`, whose tables are in `home/tables` by default.

    Raises `ResourceError` if the manifest or a table is missing or unreadable.
    """
    manifest = Manifest.load(home)
    if manifest is None:
        raise ResourceError(f"There is no feed in {home} to check against.", hint="Run the demo first.")
    tables = tables or home / "tables"
    legs = read_legs(manifest.parameters.period)
    result = check_tables(manifest, legs, read_departures(tables), read_board(tables), dead_letters)
    return CheckResult([feed_is_complete(home, manifest), *result.points])


def check_tables(
    manifest: Manifest,
    legs: Sequence[Leg],
    departures: Sequence[Departure],
    board: Sequence[BoardHour],
    dead_letters: Sequence[DeadLetterSummary],
) -> CheckResult:
    """Compare the tables with the source."""
    withheld = set(manifest.withheld)
    sent = {leg.leg_id: leg for leg in legs if leg.leg_id not in withheld}
    rows = {row.leg_id: row for row in departures}
    return CheckResult(
        [
            nothing_lost(sent, rows),
            nothing_twice(departures),
            nothing_invented(sent, departures),
            causes_first(sent, rows),
            lost_are_marked(sent, withheld, departures),
            knock_on_is_right(sent, departures),
            board_adds_up(sent.values(), board),
            bad_lines_are_dead_letters(manifest, dead_letters),
        ]
    )


def feed_is_complete(home: Path, manifest: Manifest) -> Point:
    """Every planned line was written."""
    folder = home / FEED_FOLDER
    files = [*folder.glob("*.jsonl"), *done_files(folder)]
    lines = sum(path.read_bytes().count(b"\n") for path in files)
    wrong = []
    if len(files) != manifest.files or lines != manifest.lines:
        wrong.append(f"{lines} lines in {len(files)} files, instead of {manifest.lines} in {manifest.files}")
    return _point("The feed was written to its end", manifest.lines, wrong)


def nothing_lost(sent: Mapping[str, Leg], rows: Mapping[str, Departure]) -> Point:
    """Every departure that was sent has a row."""
    return _point("Nothing is lost", len(sent), (f"{leg_id} is not in the table" for leg_id in sent if leg_id not in rows))


def nothing_twice(departures: Sequence[Departure]) -> Point:
    """No departure has two rows, and no two rows have one position."""
    counts = Counter(row.leg_id for row in departures)
    positions = Counter(row.position for row in departures)
    wrong = [f"{leg_id} is there {count} times" for leg_id, count in counts.items() if count > 1]
    wrong += [f"{count} departures have position {position}" for position, count in positions.items() if count > 1]
    return _point("Nothing is there twice", len(departures), wrong)


def nothing_invented(sent: Mapping[str, Leg], departures: Sequence[Departure]) -> Point:
    """Every row is a departure that was sent, with the values that were sent."""
    wrong = []
    for row in departures:
        leg = sent.get(row.leg_id)
        if leg is None:
            wrong.append(f"{row.leg_id} was never sent")
        elif (row.previous_leg_id, row.tail_number, row.carrier, row.dep_delay) != (
            leg.previous_leg_id,
            leg.tail_number,
            leg.carrier,
            leg.dep_delay,
        ):
            wrong.append(f"{row.leg_id} is not as it was sent: {row}")
    return _point("Nothing is invented or changed", len(departures), wrong)


def causes_first(sent: Mapping[str, Leg], rows: Mapping[str, Departure]) -> Point:
    """Every departure has a greater position than its leader, if that one was sent."""
    pairs = [
        (leader, follower)
        for leg in sent.values()
        if (follower := rows.get(leg.leg_id)) is not None and (leader := rows.get(leg.previous_leg_id or "")) is not None
    ]
    wrong = (
        f"{follower.leg_id} at {follower.position} is not after {leader.leg_id} at {leader.position}"
        for leader, follower in pairs
        if leader.position >= follower.position
    )
    return _point("No departure is before the one it follows", len(pairs), wrong)


def lost_are_marked(sent: Mapping[str, Leg], withheld: set[str], departures: Sequence[Departure]) -> Point:
    """The followers of lost leaders are marked `lost`, and no other event is marked."""
    lost = {leg.leg_id for leg in sent.values() if leg.previous_leg_id in withheld}
    wrong = [
        f"{row.leg_id} has the mark {row.mark!r} instead of {expected!r}"
        for row in departures
        if row.mark != (expected := "lost" if row.leg_id in lost else None)
    ]
    here = {row.leg_id for row in departures}
    wrong += [f"{leg_id} should be marked lost, and is not there" for leg_id in sorted(lost - here)]
    return _point("Exactly the events whose leader never came are marked", len(lost), wrong)


def knock_on_is_right(sent: Mapping[str, Leg], departures: Sequence[Departure]) -> Point:
    """Every row has the delay of the previous departure, which the pipeline knows only if that one came first."""
    wrong = []
    for row in departures:
        leg = sent.get(row.leg_id)
        if leg is not None and (row.previous_delay, row.knocked_on) != (expected := _knock_on(leg, sent)):
            wrong.append(f"{row.leg_id} has previous delay and knock-on {(row.previous_delay, row.knocked_on)} instead of {expected}")
    return _point("Every knock-on delay is right", len(departures), wrong)


def board_adds_up(sent: Iterable[Leg], board: Sequence[BoardHour]) -> Point:
    """The hourly board has one row for each hour and airport, with the sums of the source."""
    expected: dict[tuple[datetime, str], list[int]] = {}
    for leg in sent:
        delay = leg.dep_delay
        hour = leg.scheduled.replace(minute=0, second=0, microsecond=0)
        _add(expected, (hour, leg.origin), (1, leg.cancelled, delay is not None and delay >= DELAYED, delay or 0))
    actual: dict[tuple[datetime, str], list[list[int]]] = {}
    for one in board:
        sums = [one.departures, one.cancelled, one.delayed, one.delay_minutes]
        actual.setdefault((one.hour, one.origin), []).append(sums)
    wrong = (
        f"{origin} at {hour:%Y-%m-%d %H:00} UTC has the rows {actual.get((hour, origin), [])} instead of {expected.get((hour, origin))}"
        for hour, origin in sorted(expected.keys() | actual.keys())
        if actual.get((hour, origin)) != [expected.get((hour, origin))]
    )
    return _point("The hourly board has one exact row for each hour", len(expected), wrong)


def bad_lines_are_dead_letters(manifest: Manifest, dead_letters: Sequence[DeadLetterSummary]) -> Point:
    """Every bad line is a dead letter, once, with its file, its offset and a reason; there are no others."""
    actual = Counter(f"{file_of(one.lane or '')} at byte {one.position}: {one.kind}" for one in dead_letters)
    expected = Counter(f"{bad.file} at byte {bad.offset}: {bad.kind}" for bad in manifest.bad)
    wrong = [f"{line}, not kept" for line in (expected - actual).elements()]
    wrong += [f"{line}, kept without cause or twice" for line in (actual - expected).elements()]
    wrong += [f"{one.lane} at byte {one.position}: no reason given" for one in dead_letters if not one.reason.strip()]
    return _point("Every bad line is kept as a dead letter", len(manifest.bad), wrong)


def _knock_on(leg: Leg, sent: Mapping[str, Leg]) -> tuple[int | None, int | None]:
    leader = sent.get(leg.previous_leg_id) if leg.previous_leg_id is not None else None
    if leader is None or leader.dep_delay is None or leg.dep_delay is None:
        return (None if leader is None else leader.dep_delay, None)
    return leader.dep_delay, max(0, min(leg.dep_delay, leader.dep_delay))


def _add(sums: dict[tuple[datetime, str], list[int]], key: tuple[datetime, str], values: Sequence[int]) -> None:
    sums[key] = [old + int(new) for old, new in zip(sums.get(key, [0] * len(values)), values, strict=True)]


def _point(what: str, looked_at: int, wrong: Iterable[Any]) -> Point:
    failures = list(wrong)
    return Point(what, looked_at, len(failures), failures[:EXAMPLES])
