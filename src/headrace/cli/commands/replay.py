"""`headrace replay`: a whole history in causal order."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape

from headrace.cli.console import out
from headrace.cli.options import ApiUrl, AsJson, Conf, Home, Master, Project, spark_conf
from headrace.cli.progress import ShownProgress
from headrace.cli.rendering import show
from headrace.errors import UsageError
from headrace.replay.options import Fields, LogSelection, ReplayOptions
from headrace.settings import Settings, read_settings

if TYPE_CHECKING:
    from headrace.replay.backtest import BacktestFiring
    from headrace.replay.run import ReplayReport

EPILOG: Final = """Examples:

[bold]headrace replay history/ --id leg_id --follows previous_leg_id --occurred departed_at[/bold]

[bold]headrace replay history/ --project project.py --backtest[/bold]   what would each trigger have fired?

[bold]headrace replay --log --project project.py --pipelines --out trial[/bold]   the pipelines on all that is in the log"""


_WORTH_A_RATE: Final = 100_000
"""Of fewer events than this, what takes its time is the start of Spark."""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("replay", rich_help_panel="Replay", epilog=EPILOG)(replay)


def replay(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Files or folders of Parquet or JSON lines.", metavar="[PATH…]", show_default=False)
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="Replay the event log, through the api.")] = False,
    out_folder: Annotated[Path, typer.Option("--out", help="A new folder for what comes out.", metavar="DIR")] = Path("replay"),
    id: Annotated[
        str | None,
        typer.Option("--id", help="The column or field with the event's id; or a path, $.leg.id.", show_default=False, metavar="NAME"),
    ] = None,
    follows: Annotated[
        str | None, typer.Option("--follows", help="The one with the id of the event that it follows.", show_default=False, metavar="NAME")
    ] = None,
    occurred: Annotated[
        str | None, typer.Option("--occurred", help="The one that says when it occurred.", show_default=False, metavar="NAME")
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", help="The one that says what it is about.", show_default=False, metavar="NAME")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", help="The ordering key, which leader and follower share: quicker with one.", show_default=False, metavar="NAME"
        ),
    ] = None,
    project: Project = None,
    watch: Annotated[
        str | None, typer.Option("--watch", help="The watch whose upstream the files stand for.", show_default=False, metavar="NAME")
    ] = None,
    backtest: Annotated[bool, typer.Option("--backtest", help="Report what each trigger of the project would have fired.")] = False,
    pipelines: Annotated[bool, typer.Option("--pipelines", help="Run the project's pipelines on the ordered events.")] = False,
    home: Home = None,
    api_url: ApiUrl = None,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Put a whole history into causal order, as Parquet; try triggers and pipelines on it.

    Each event comes after the one it follows. Columns are added: position, and mark (lost: the one it follows is not there; cycle).
    """
    if log == bool(paths):
        raise UsageError("Say what to replay: files or folders, or the event log with --log.", hint="See `headrace replay --help`.")
    settings = read_settings(project=project, home=home, api_url=api_url, master=master, spark_conf=spark_conf(conf))
    asks_project = project is not None or watch is not None or backtest or pipelines
    options = ReplayOptions(
        out=out_folder,
        work=settings.home.absolute() / "replay",
        paths=tuple(paths or ()),
        log=LogSelection(settings.url, settings.with_key().key) if log else None,
        fields=Fields(id or "id", follows, occurred, subject, key),
        master=settings.master,
        conf=settings.spark_conf,
        watch=watch,
        backtest=backtest,
        pipelines=pipelines,
    )
    _run(settings, options, asks_project=asks_project, fields_from_project=asks_project and not log and id is None, as_json=as_json)


def _run(settings: Settings, options: ReplayOptions, *, asks_project: bool, fields_from_project: bool, as_json: bool) -> None:
    from headrace.replay.project_inputs import fields_of
    from headrace.wiring.project import read_project
    from headrace.wiring.replay import replay_history

    project = read_project(settings) if asks_project else None
    if project is not None and fields_from_project:
        options = replace(options, fields=replace(fields_of(project, options.watch), key=options.fields.key))
    with ShownProgress() as shown:
        report = replay_history(settings, options, shown.tell, project=project)
    if as_json:
        out.print(json.dumps(report.on_wire(), indent=2, default=str), markup=False)
    else:
        _show(report, timed=options.fields.occurred is not None)


def _show(report: ReplayReport, *, timed: bool) -> None:
    outcome = report.outcome
    rate = f" ({outcome.events / report.seconds:,.0f} events/s)" if outcome.events >= _WORTH_A_RATE else ""
    where = escape(str(report.out / "ordered"))
    out.print(f"[bold green]✓[/] {outcome.events:,} events in order in {where}, {report.seconds:,.1f} s{rate}")
    if report.first is not None and report.first > 1:
        out.print(f"  The log begins at event {report.first:,}: earlier events were pruned and count as handled.")
    told = {
        "lost: the event that they follow is not there": outcome.lost,
        f"in {outcome.cycles:,} cycles": outcome.in_cycles,
        "copies, left out": outcome.copies,
        "without an id, left out": outcome.unnamed,
        "without a moment that can be read: they count as having occurred when they were read": outcome.untimed if timed else 0,
    }
    for what, count in told.items():
        if count:
            out.print(f"  {count:,} {what}")
    if outcome.crossing:
        examples = escape(", ".join(outcome.crossing_ids))
        out.print(f"  [yellow]{outcome.crossing:,} of the lost follow an event under another key[/], for example {examples}.")
        out.print("  Leave --key away to have them in order too.")
    elif outcome.events and outcome.lost * 2 > outcome.events:
        out.print("  [yellow]Most are lost.[/] Do --id and --follows name the same kind of thing, and is the history whole?")
    if report.triggers:
        _show_triggers(report)
    for ran in report.pipelines:
        out.print(f"Pipeline [bold]{escape(ran.pipeline)}[/]: {ran.events:,} events in {ran.batches:,} batches, {ran.rows:,} rows")


def _show_triggers(report: ReplayReport) -> None:
    show(
        ["would fire", "#times", "first", "last", "~for example", "#rejected", "#lacks a field", "!trouble"],
        [
            (
                trigger.trigger,
                trigger.fired,
                _when(trigger.first),
                _when(trigger.last),
                ", ".join(fired.id for fired in trigger.examples),
                trigger.rejected,
                trigger.missing,
                trigger.note or "",
            )
            for trigger in report.triggers
        ],
        empty="The project has no triggers.",
    )


def _when(fired: BacktestFiring | None) -> str | None:
    if fired is None:
        return None
    return f"#{fired.position:,}" if fired.occurred is None else f"{fired.occurred:%Y-%m-%d %H:%M:%S}"
