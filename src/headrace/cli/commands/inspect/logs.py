"""`headrace logs`: print and follow the logs of triggers, runs and processes."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from re import fullmatch
from typing import Annotated, Final, Literal

import typer
from watchfiles import watch

from headrace.cli.credentials import for_looking
from headrace.cli.groups import INSPECT, command_group, examples
from headrace.cli.options import ApiUrl, Home
from headrace.client.logs import LogClient
from headrace.errors import UsageError
from headrace.logs.format import decode, render
from headrace.logs.query import LogQuery
from headrace.settings import read_settings

Level = Literal["debug", "info", "warning", "error", "critical"]
LEVELS: Final = ("debug", "info", "warning", "error", "critical")
UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
DEFAULT_LINES: Final = 100

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")]
Lines = Annotated[
    int, typer.Option("--lines", "-n", min=0, max=100_000, help="Number of last lines. With --since and -f: all lines.", metavar="N")
]
Since = Annotated[
    str | None, typer.Option("--since", help="Only lines since then: 90s, 10m, 2h or 1d ago, or a time (RFC 3339).", metavar="TIME")
]
AtLeast = Annotated[Level | None, typer.Option("--level", help="Only lines of this level and above.", show_default=False)]
Raw = Annotated[bool, typer.Option("--json", help="Print the lines as JSON.")]
Job = Annotated[int | None, typer.Option("--job", min=1, help="The log of this job, if several have run the trigger.", metavar="JOB")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    group = command_group("Print the log of a trigger, a run or a process.", "headrace logs trigger legs.united -f")
    group.command("trigger", epilog=examples("headrace logs trigger legs.united -f --level warning"))(trigger)
    group.command("run", epilog=examples("headrace logs run 5f1c7a"))(run)
    group.command("process", epilog=examples("headrace logs process triggerer -f"))(process)
    app.add_typer(group, name="logs", rich_help_panel=INSPECT)


def trigger(
    name: Annotated[str, typer.Argument(help="Name or id of the trigger.", metavar="NAME", show_default=False)],
    follow: Follow = False,
    lines: Lines = DEFAULT_LINES,
    job: Job = None,
    since: Since = None,
    level: AtLeast = None,
    json: Raw = False,
    api_url: ApiUrl = None,
) -> None:
    """Print the log of a trigger. With -f, follow it, also if another triggerer takes it over."""
    lines_filter = _LineFilter.parse(since, level)
    _print(_client(api_url).trigger(name, job, lines_filter.query(lines, follow=follow)), lines_filter, lines, follow=follow, as_json=json)


def run(
    run_id: Annotated[str, typer.Argument(help="Id of the pipeline run or task run, or a prefix of it.", metavar="ID", show_default=False)],
    follow: Follow = False,
    lines: Lines = DEFAULT_LINES,
    since: Since = None,
    level: AtLeast = None,
    json: Raw = False,
    api_url: ApiUrl = None,
) -> None:
    """Print the log of a pipeline run or task run."""
    lines_filter = _LineFilter.parse(since, level)
    _print(_client(api_url).run(run_id, lines_filter.query(lines, follow=follow)), lines_filter, lines, follow=follow, as_json=json)


def process(
    name: Annotated[
        str,
        typer.Argument(
            help="A process of `headrace standalone`: api, triggerer, pipeline or worker.", metavar="PROCESS", show_default=False
        ),
    ],
    follow: Follow = False,
    lines: Lines = DEFAULT_LINES,
    since: Since = None,
    level: AtLeast = None,
    json: Raw = False,
    home: Home = None,
) -> None:
    """Print the log of a process on this machine."""
    folder = read_settings(home=home).home / "logs"
    known = sorted(path.stem for path in folder.glob("*.log"))
    if name not in known:
        logs = f"There are: {', '.join(known)}." if known else f"There are no logs in {folder}."
        raise UsageError(f"There is no log of '{name}'. {logs}", hint="`headrace standalone` stores logs in --home. Check the folder.")
    lines_filter = _LineFilter.parse(since, level)
    path = folder / f"{name}.log"
    _print(_read(path, lines_filter.query(lines, follow=follow), follow=follow), lines_filter, lines, follow=follow, as_json=json)


def _client(api_url: str | None) -> LogClient:
    settings = read_settings(api_url=api_url)
    return LogClient(settings.url, token=for_looking(settings))


@dataclass(frozen=True, slots=True)
class _LineFilter:
    """Selects lines. A foreign line in the log of a process has neither time nor level: it belongs to the line before it."""

    since: datetime | None
    level: Level | None

    @classmethod
    def parse(cls, since: str | None, level: Level | None) -> _LineFilter:
        return cls(None if since is None else _time(since, datetime.now(UTC)), level)

    def query(self, lines: int, *, follow: bool) -> LogQuery:
        """Return the query. It begins at the first line if lines are selected by time or level."""
        selects = self.since is not None or self.level is not None
        return LogQuery(after=0 if selects else None, last=None if selects else lines, follow=follow)

    def predicate(self) -> Callable[[str], bool]:
        last = self.since is None and self.level is None

        def matches(line: str) -> bool:
            nonlocal last
            fields = decode(line)
            if fields is not None:
                last = self._has(str(fields.get("timestamp", "")), str(fields.get("level", "")))
            return last

        return matches

    def _has(self, timestamp: str, level: str) -> bool:
        if self.level is not None and (level not in LEVELS or LEVELS.index(level) < LEVELS.index(self.level)):
            return False
        try:
            return self.since is None or datetime.fromisoformat(timestamp) >= self.since
        except (ValueError, TypeError):
            return False


def _time(text: str, now: datetime) -> datetime:
    match = fullmatch(r"(\d{1,6})([smhd])", text)
    if match is not None:
        return now - timedelta(**{UNITS[match[2]]: int(match[1])})
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"Invalid time '{text}'.", hint="Use 90s, 10m, 2h or 1d, or a time such as 2026-11-21T12:00:00Z.") from error
    return time if time.tzinfo is not None else time.astimezone()


def _print(text: Iterable[str], lines_filter: _LineFilter, lines: int, *, follow: bool, as_json: bool) -> None:
    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    selected = filter(lines_filter.predicate(), text)
    for line in selected if follow else deque(selected, maxlen=lines):
        sys.stdout.write((line if as_json else render(line, colours=colours)) + "\n")
        if follow:
            sys.stdout.flush()


def _read(path: Path, query: LogQuery, *, follow: bool) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace", newline="\n") as log:
        yield from (line.rstrip("\r\n") for line in deque(log, maxlen=query.last))
        if follow:
            for _ in watch(path, raise_interrupt=True, rust_timeout=2_000, yield_on_timeout=True, debounce=200):
                yield from (line.rstrip("\r\n") for line in log)
