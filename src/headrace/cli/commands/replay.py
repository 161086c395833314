"""`headrace replay`: put a complete history into causal order, and try triggers and pipelines on it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape

from headrace.cli.console import out
from headrace.cli.groups import examples
from headrace.cli.options import ApiUrl, AsJson, Conf, Home, Master, Project, spark_conf
from headrace.cli.progress import ProgressBars
from headrace.cli.rendering import long, number, print_table, problem
from headrace.errors import UsageError
from headrace.replay.options import Fields, LogSelection, ReplayOptions
from headrace.settings import Settings, read_settings

if TYPE_CHECKING:
    from headrace.replay.backtest import BacktestFiring
    from headrace.replay.run import ReplayReport

EPILOG: Final = examples(
    "headrace replay history/ --id leg_id --follows previous_leg_id --occurred departed_at",
    ("headrace replay history/ --project project.py --backtest", "what each trigger would have fired"),
    ("headrace replay --log --project project.py --pipelines --out trial", "the pipelines on the event log"),
)

MIN_EVENTS_FOR_RATE: Final = 100_000
"""With fewer events, most of the time is the start of Spark."""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("replay", rich_help_panel="Replay", epilog=EPILOG)(replay)


def replay(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Files or folders of Parquet or JSON lines.", metavar="[PATH…]", show_default=False)
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="Replay the event log, from the API server.")] = False,
    out_folder: Annotated[Path, typer.Option("--out", help="A new folder for the result.", metavar="DIR")] = Path("replay"),
    id: Annotated[
        str | None,
        typer.Option(
            "--id", help="Column or field with the id of the event, or a path such as $.leg.id.", show_default=False, metavar="NAME"
        ),
    ] = None,
    follows: Annotated[
        str | None,
        typer.Option("--follows", help="Column or field with the id of the event that it follows.", show_default=False, metavar="NAME"),
    ] = None,
    occurred: Annotated[
        str | None, typer.Option("--occurred", help="Column or field with the time of the event.", show_default=False, metavar="NAME")
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", help="Column or field with the subject of the event.", show_default=False, metavar="NAME")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            help="Column or field with the ordering key, which leader and follower share. A key makes the replay faster.",
            show_default=False,
            metavar="NAME",
        ),
    ] = None,
    project: Project = None,
    watch: Annotated[
        str | None, typer.Option("--watch", help="Watch whose upstream the files replace.", show_default=False, metavar="NAME")
    ] = None,
    backtest: Annotated[bool, typer.Option("--backtest", help="Report what each trigger of the project would have fired.")] = False,
    pipelines: Annotated[bool, typer.Option("--pipelines", help="Run the project's pipelines on the ordered events.")] = False,
    home: Home = None,
    api_url: ApiUrl = None,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Put a complete history into causal order, as Parquet, and try triggers and pipelines on it.

    Each event comes after its leader. The result has two more columns: `position`, and `mark` (`lost`: the leader is missing; `cycle`).
    """
    if log == bool(paths):
        raise UsageError("Name either files and folders to replay, or --log for the event log.", hint="See `headrace replay --help`.")
    settings = read_settings(project=project, home=home, api_url=api_url, master=master, spark_conf=spark_conf(conf))
    uses_project = project is not None or watch is not None or backtest or pipelines
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
    _run(settings, options, uses_project=uses_project, fields_from_project=uses_project and not log and id is None, as_json=as_json)


def _run(settings: Settings, options: ReplayOptions, *, uses_project: bool, fields_from_project: bool, as_json: bool) -> None:
    from headrace.replay.project_inputs import fields_of
    from headrace.wiring.project import read_project
    from headrace.wiring.replay import replay_history

    project = read_project(settings) if uses_project else None
    if project is not None and fields_from_project:
        options = replace(options, fields=replace(fields_of(project, options.watch), key=options.fields.key))
    with ProgressBars() as progress:
        report = replay_history(settings, options, progress.update, project=project)
    if as_json:
        out.print(json.dumps(report.on_wire(), indent=2, default=str), markup=False)
    else:
        _print(report, timed=options.fields.occurred is not None)


def _print(report: ReplayReport, *, timed: bool) -> None:
    outcome = report.outcome
    rate = f" ({outcome.events / report.seconds:,.0f} events/s)" if outcome.events >= MIN_EVENTS_FOR_RATE else ""
    where = escape(str(report.out / "ordered"))
    out.print(f"[bold green]✓[/] {outcome.events:,} events in order in {where}, {report.seconds:,.1f} s{rate}")
    if report.first is not None and report.first > 1:
        out.print(f"  The log begins at event {report.first:,}: earlier events were pruned and count as handled.")
    remarks = {
        "lost: their leader is missing": outcome.lost,
        f"in {outcome.cycles:,} cycles": outcome.in_cycles,
        "copies, left out": outcome.copies,
        "without an id, left out": outcome.unnamed,
        "without a readable time: the time of the replay is used": outcome.untimed if timed else 0,
    }
    for what, count in remarks.items():
        if count:
            out.print(f"  {count:,} {what}")
    if outcome.crossing:
        examples = escape(", ".join(outcome.crossing_ids))
        out.print(f"  [yellow]{outcome.crossing:,} of the lost follow an event under another key[/], for example {examples}.")
        out.print("  Without --key they are ordered too.")
    elif outcome.events and outcome.lost * 2 > outcome.events:
        out.print("  [yellow]Most are lost.[/] Check that --id and --follows name the same kind of id, and that the history is complete.")
    if report.triggers:
        _print_triggers(report)
    for ran in report.pipelines:
        out.print(f"Pipeline [bold]{escape(ran.pipeline)}[/]: {ran.events:,} events in {ran.batches:,} batches, {ran.rows:,} rows")


def _print_triggers(report: ReplayReport) -> None:
    print_table(
        [
            "would fire",
            number("times"),
            "first",
            "last",
            long("for example"),
            number("rejected"),
            number("lacks a field"),
            problem("problem"),
        ],
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
