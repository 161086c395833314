"""The result of the demo: tables for the terminal, and a chart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headrace.demo.feed.manifest import Manifest
from headrace.demo.report.check import CheckResult
from headrace.demo.report.tables import BoardHour, Departure, read_board, read_departures

NEW_YORK: Final = ZoneInfo("America/New_York")
CHART_NAME: Final = "knock-on-delay.png"
TOP: Final = 10


@dataclass(slots=True)
class Delays:
    """Sums over the departures of one airline or aircraft; minutes."""

    name: str
    departures: int = 0
    delay: int = 0
    knocked_on: int = 0

    def add(self, row: Departure) -> None:
        """Add a departure."""
        self.departures += 1
        self.delay += max(row.dep_delay or 0, 0)
        self.knocked_on += row.knocked_on or 0

    @property
    def share(self) -> float:
        """Return the share of the delay that the previous departure already had, from 0 to 1."""
        return self.knocked_on / self.delay if self.delay else 0.0


def report(home: Path, console: Console, checked: CheckResult, tables: Path | None = None) -> Path:
    """Print the result of the demo in `home` and draw the chart; return the chart's path. Raises `ResourceError`."""
    tables = tables or home / "tables"
    departures = read_departures(tables)
    airlines = sums_by(departures, [row.carrier for row in departures])
    aircraft = sums_by((row for row in departures if row.previous_leg_id), [row.tail_number for row in departures if row.previous_leg_id])
    console.print(_delays_table("Knock-on delay by airline", "airline", airlines))
    console.print(_delays_table(f"The {TOP} aircraft that passed on the most delay", "aircraft", aircraft[:TOP]))
    manifest = Manifest.load(home)
    if manifest is not None:
        console.print(_order_line(manifest, departures))
    console.print(check_table(checked))
    return draw_chart(home / CHART_NAME, airlines, read_board(tables))


def sums_by(rows: Iterable[Departure], names: Sequence[str]) -> list[Delays]:
    """Return the sums for each name, the greatest knock-on delay first; `names` has the name of each row."""
    sums: dict[str, Delays] = {}
    for row, name in zip(rows, names, strict=True):
        sums.setdefault(name, Delays(name)).add(row)
    return sorted(sums.values(), key=lambda one: (-one.knocked_on, one.name))


def check_table(checked: CheckResult) -> Table:
    """Return the check as a table: each check, its number of items, and its failures."""
    table = Table(title="The check", title_justify="left", title_style="bold")
    table.add_column("")
    table.add_column("what must hold")
    table.add_column("looked at", justify="right")
    table.add_column("wrong", justify="right")
    for point in checked.points:
        table.add_row("[green]✓[/]" if point.ok else "[red]✗[/]", point.what, f"{point.looked_at:,}", f"{point.failed:,}")
        for example in point.examples:
            table.add_row("", f"[red]{escape(example)}[/]", "", "")
    return table


def _delays_table(title: str, column: str, rows: Sequence[Delays]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(column)
    for name in ("departures", "delay, h", "of it knocked on, h", "share"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            escape(row.name), f"{row.departures:,}", f"{row.delay / 60:,.0f}", f"{row.knocked_on / 60:,.0f}", f"{100 * row.share:.0f} %"
        )
    return table


def _order_line(manifest: Manifest, departures: Sequence[Departure]) -> str:
    lost = sum(row.mark == "lost" for row in departures)
    return (
        f"{manifest.early:,} departures were reported before the one they follow, and waited for it. "
        f"{len(manifest.withheld)} never came; {lost} departures that follow one of those went on without it, marked lost. "
        f"{manifest.repeated:,} came twice; {len(manifest.bad)} lines were broken."
    )


def draw_chart(path: Path, airlines: Sequence[Delays], board: Sequence[BoardHour]) -> Path:
    """Draw the delays by airline and by hour of the day into `path`, and return it."""
    # Imported here: the import takes a second, and must not open a display.
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
