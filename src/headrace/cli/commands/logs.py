"""`headrace logs trigger|run|process`: what was logged, and what is being logged."""

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
from headrace.cli.options import ApiUrl, Home
from headrace.client.logs import LogClient
from headrace.errors import UsageError
from headrace.logs.format import decode, render
from headrace.logs.query import LogQuery
from headrace.settings import read_settings

Level = Literal["debug", "info", "warning", "error", "critical"]
LEVELS: Final = ("debug", "info", "warning", "error", "critical")
UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
LINES: Final = 100

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines come; Ctrl-C ends it.")]
Lines = Annotated[int, typer.Option("--lines", "-n", min=0, max=100_000, help="How many of the last lines; with --since and -f: all.")]
Since = Annotated[
    str | None, typer.Option("--since", help="Only since then: 90s, 10m, 2h, 1d ago, or a moment (RFC 3339).", show_default=False)
]
AtLeast = Annotated[Level | None, typer.Option("--level", help="Only lines of this level and worse.", show_default=False)]
Raw = Annotated[bool, typer.Option("--json", help="Print the lines as they are: JSON.")]
Job = Annotated[int | None, typer.Option("--job", min=1, help="The log of this job, where several ran the trigger.", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    logs = typer.Typer(no_args_is_help=True, help="Show the log of a trigger, a run or a process.")
    logs.command("trigger", epilog="Example: [bold]headrace logs trigger legs.united -f --level warning[/bold]")(trigger)
    logs.command("run", epilog="Example: [bold]headrace logs run 5f1c7a[/bold]")(run)
    logs.command("process", epilog="Example: [bold]headrace logs process triggerer -f[/bold]")(process)
    app.add_typer(
        logs, name="logs", rich_help_panel="Inspect and repair", epilog="Example: [bold]headrace logs trigger legs.united -f[/bold]"
    )


def trigger(
    name: Annotated[str, typer.Argument(help="The trigger's name, or its id.", metavar="NAME")],
    follow: Follow = False,
    lines: Lines = LINES,
    job: Job = None,
    since: Since = None,
    level: AtLeast = None,
    json: Raw = False,
    api_url: ApiUrl = None,
) -> None:
    """Show what a trigger logged; with -f also what it logs next, whichever triggerer runs it then."""
    wanted = _Wanted.given(since, level)
    _show(_client(api_url).trigger(name, job, wanted.asked(lines, follow=follow)), wanted, lines, follow=follow, as_json=json)


def run(
    run_id: Annotated[str, typer.Argument(help="The run's id, or the beginning of it.", metavar="ID")],
    follow: Follow = False,
    lines: Lines = LINES,
    since: Since = None,
    level: AtLeast = None,
    json: Raw = False,
    api_url: ApiUrl = None,
) -> None:
    """Show what was logged in a run."""
    wanted = _Wanted.given(since, level)
    _show(_client(api_url).run(run_id, wanted.asked(lines, follow=follow)), wanted, lines, follow=follow, as_json=json)


def process(
    name: Annotated[str, typer.Argument(help="api, triggerer or pipeline, as `headrace standalone` runs them.", metavar="PROCESS")],
    follow: Follow = False,
    lines: Lines = LINES,
    since: Since = None,
    level: AtLeast = None,
    json: Raw = False,
    home: Home = None,
) -> None:
    """Show the log of a process of this machine."""
    folder = read_settings(home=home).home / "logs"
    known = sorted(path.stem for path in folder.glob("*.log"))
    if name not in known:
        there = f"there are: {', '.join(known)}" if known else f"there is none in {folder}"
        raise UsageError(
            f"No log of '{name}'; {there}.", hint="Logs are kept in --home by `headrace standalone`; is this the right folder?"
        )
    wanted = _Wanted.given(since, level)
    path = folder / f"{name}.log"
    _show(_read(path, wanted.asked(lines, follow=follow), follow=follow), wanted, lines, follow=follow, as_json=json)


def _client(api_url: str | None) -> LogClient:
    settings = read_settings(api_url=api_url)
    return LogClient(settings.url, token=for_looking(settings))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which lines are shown. One that is not ours, in a process's log, has neither time nor level: it goes with the line before it."""

    since: datetime | None
    level: Level | None

    @classmethod
    def given(cls, since: str | None, level: Level | None) -> _Wanted:
        return cls(None if since is None else _moment(since, datetime.now(UTC)), level)

    def asked(self, lines: int, *, follow: bool) -> LogQuery:
        """Return what to request: from the beginning if lines are selected."""
        chosen = self.since is not None or self.level is not None
        return LogQuery(after=0 if chosen else None, last=None if chosen else lines, follow=follow)

    def filter(self) -> Callable[[str], bool]:
        last = self.since is None and self.level is None

        def wanted(line: str) -> bool:
            nonlocal last
            fields = decode(line)
            if fields is not None:
                last = self._has(str(fields.get("timestamp", "")), str(fields.get("level", "")))
            return last

        return wanted

    def _has(self, timestamp: str, level: str) -> bool:
        if self.level is not None and (level not in LEVELS or LEVELS.index(level) < LEVELS.index(self.level)):
            return False
        try:
            return self.since is None or datetime.fromisoformat(timestamp) >= self.since
        except (ValueError, TypeError):
            return False


def _moment(text: str, now: datetime) -> datetime:
    ago = fullmatch(r"(\d{1,6})([smhd])", text)
    if ago is not None:
        return now - timedelta(**{UNITS[ago[2]]: int(ago[1])})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"Invalid time '{text}'.", hint="Use 90s, 10m, 2h or 1d, or a time such as 2026-11-21T12:00:00Z.") from error
    return moment if moment.tzinfo is not None else moment.astimezone()


def _show(found: Iterable[str], wanted: _Wanted, lines: int, *, follow: bool, as_json: bool) -> None:
    colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    chosen = filter(wanted.filter(), found)
    for line in chosen if follow else deque(chosen, maxlen=lines):
        sys.stdout.write((line if as_json else render(line, colours=colours)) + "\n")
        if follow:
            sys.stdout.flush()


def _read(path: Path, asked: LogQuery, *, follow: bool) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace", newline="\n") as log:
        yield from (line.rstrip("\r\n") for line in deque(log, maxlen=asked.last))
        if follow:
            for _ in watch(path, raise_interrupt=True, rust_timeout=2_000, yield_on_timeout=True, debounce=200):
                yield from (line.rstrip("\r\n") for line in log)
