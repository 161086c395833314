"""The chart of the demo, as a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from headrace.demo.report.report import Delays
    from headrace.demo.report.tables import BoardHour

NEW_YORK: Final = ZoneInfo("America/New_York")


def draw_chart(path: Path, airlines: Sequence[Delays], board: Sequence[BoardHour]) -> Path:
    """Draw the delays by airline and by hour of the day into `path`, and return it."""
    # Imported here: it takes a second, and it must not look for a screen.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    FigureCanvasAgg(figure)
    by_airline, by_hour = figure.subplots(2, 1)

    names = [one.name for one in airlines]
    by_airline.bar(names, [one.delay / 60 for one in airlines], color="#c9d3df", label="delay of the departure")
    by_airline.bar(names, [one.knocked_on / 60 for one in airlines], color="#b5452c", label="already on the aircraft's previous departure")
    by_airline.set_title("Departure delay by airline, and how much of it came in with the aircraft")
    by_airline.set_ylabel("hours")
    by_airline.legend()

    hours = mean_delay_by_hour(board)
    by_hour.bar(list(hours), list(hours.values()), color="#3d6d8f")
    by_hour.set_title("Mean departure delay by scheduled hour in New York")
    by_hour.set_xlabel("hour of the day")
    by_hour.set_ylabel("minutes")
    by_hour.set_xticks(list(hours))
    figure.savefig(path, dpi=110)
    return path


def mean_delay_by_hour(board: Sequence[BoardHour]) -> dict[int, float]:
    """Return the mean delay, in minutes, of the departures that were not cancelled, for each hour of the day in New York."""
    flown: dict[int, int] = {}
    minutes: dict[int, int] = {}
    for one in board:
        hour = one.hour.astimezone(NEW_YORK).hour
        flown[hour] = flown.get(hour, 0) + one.departures - one.cancelled
        minutes[hour] = minutes.get(hour, 0) + one.delay_minutes
    return {hour: minutes[hour] / count for hour, count in sorted(flown.items()) if count}
