"""`headrace tables`: list the tables of pipelines, see what changed them, compact them, and continue them with another event log."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Final

import typer

from headrace.cli.console import out
from headrace.cli.groups import INSPECT, examples, list_group
from headrace.cli.options import AsJson, Home, Limit, Tables
from headrace.cli.progress import ProgressBars
from headrace.cli.rendering import Columns, ago, count, long, number, print_json, print_table, render
from headrace.cli.table_folder import table_folder
from headrace.settings import Settings, read_settings
from headrace.wire.pipelines.tables import TableList, TableVacuum

LIST_EXAMPLE: Final = "headrace tables list --tables home/tables"
HISTORY_EXAMPLE: Final = "headrace tables history spent -n 5"
COMPACT_EXAMPLE: Final = "headrace tables compact spent"
VACUUM_EXAMPLE: Final = "headrace tables vacuum spent --keep-hours 24 --dry-run"
ADOPT_EXAMPLE: Final = "headrace tables adopt legs --scope flights --log 5f0c…"
JOB: Final = "headrace tables"
KIB: Final = 1024

Name = Annotated[str, typer.Argument(help="The table.", metavar="TABLE", show_default=False)]
Names = Annotated[list[str], typer.Argument(help="The tables.", metavar="TABLE...", show_default=False)]
Scope = Annotated[str, typer.Option("--scope", help="The scope that writes them: the name of the project.", metavar="NAME")]
Log = Annotated[str, typer.Option("--log", help="Id of the event log, from the error message.", metavar="ID")]
KeepHours = Annotated[
    int, typer.Option("--keep-hours", min=1, help="Keep files that a version of the last N hours has, for readers of it.", metavar="N")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the files, and remove none.")]

tables = list_group("See and maintain the tables of pipelines.", LIST_EXAMPLE)


def add_to(app: typer.Typer) -> None:
    """Add the group to `app`."""
    app.add_typer(tables, name="tables", rich_help_panel=INSPECT)


@tables.command("list", epilog=examples(LIST_EXAMPLE))
def list_tables(tables: Tables = None, home: Home = None, json: AsJson = False) -> None:
    """List the tables in a folder, with their rows, files and size."""
    from headrace.pipeline.tables.maintenance import summarize

    with table_folder(_settings(tables, home), JOB) as folder:
        result = TableList(tables=summarize(folder))
    rows = [(t.name, t.format, t.rows, t.files, _size(t.bytes), None if t.written is None else ago(t.written)) for t in result.tables]
    columns: Columns = ["table", "format", number("rows"), number("files"), number("size"), "written"]
    render(result, columns, rows, json=json, empty=f"There are no tables in {folder}. A pipeline with table= creates one in its first run.")


@tables.command("history", epilog=examples(HISTORY_EXAMPLE))
def history(name: Name, limit: Limit = 20, tables: Tables = None, home: Home = None, json: AsJson = False) -> None:
    """List the newest changes of a table, with the run that made each one."""
    from headrace.pipeline.tables.maintenance import read_history

    with table_folder(_settings(tables, home), JOB) as folder, ProgressBars("files", transient=True) as bars:
        result = read_history(folder, name, limit, bars.update)
    rows = [(ago(c.written), c.rows, c.scope, c.pipeline, c.batch, c.attempt, c.run_id, c.code, c.where) for c in result.changes]
    columns: Columns = ["written", number("rows"), "scope", "pipeline", number("batch"), number("attempt"), "run", "code", long("where")]
    render(result, columns, rows, json=json, empty=f"The table {name} has no rows yet.")


@tables.command("compact", epilog=examples(COMPACT_EXAMPLE))
def compact_tables(names: Names, tables: Tables = None, home: Home = None, json: AsJson = False) -> None:
    """Write the small files of tables as few large ones. Pipelines and readers may use the tables meanwhile.

    A pipeline does that by itself. The small files stay for readers of older versions. To remove them later: headrace tables vacuum TABLE.
    """
    from headrace.pipeline.tables.maintenance import compact

    with table_folder(_settings(tables, home), JOB) as folder:
        for name in names:
            result = compact(folder, name)
            if json:
                print_json(result)
            else:
                out.print(f"The table {name} has {count(result.files_after, 'file')}, before {result.files_before:,}.", markup=False)


@tables.command("vacuum", epilog=examples(VACUUM_EXAMPLE))
def vacuum_tables(
    names: Names, keep_hours: KeepHours = 168, dry_run: DryRun = False, tables: Tables = None, home: Home = None, json: AsJson = False
) -> None:
    """Remove files of tables that only old versions have.

    Each compaction and each run of a keyed table leaves such files. A reader that began before --keep-hours may fail.
    """
    from headrace.pipeline.tables.maintenance import vacuum

    with table_folder(_settings(tables, home), JOB) as folder:
        for name in names:
            _print_vacuum(vacuum(folder, name, keep_hours, dry_run=dry_run), json=json)


def _print_vacuum(result: TableVacuum, *, json: bool) -> None:
    if json:
        print_json(result)
        return
    if result.dry_run and result.files:
        print_table([long("file")], [(file,) for file in result.files])
    removed = "would lose" if result.dry_run else "lost"
    out.print(f"The table {result.table} {removed} {count(len(result.files), 'file')} of old versions.", markup=False)


@tables.command("adopt", epilog=examples(ADOPT_EXAMPLE))
def adopt_tables(names: Names, scope: Scope, log: Log, tables: Tables = None, home: Home = None) -> None:
    """Adopt tables for another event log, after the database was replaced on purpose. No rows are changed.

    Then start the scope where the tables end: headrace scopes reset SCOPE --from SEQ. The previous event log is rejected from now on.
    """
    from headrace.pipeline.runs.identity import Writer
    from headrace.pipeline.tables.compaction.table_lock import writer_lock
    from headrace.pipeline.tables.writers import TableWriters

    with table_folder(_settings(tables, home), JOB) as folder:
        for name in names:
            with writer_lock(folder, name) if isinstance(folder, Path) and (folder / name).is_dir() else nullcontext():
                before = TableWriters(folder).adopt(name, Writer(scope, log))
            previous = f", no longer with {before.log}" if before is not None and before.log != log else ""
            out.print(f"The table {name} continues with the event log {log}{previous}.", markup=False)


def _settings(tables: str | None, home: Path | None) -> Settings:
    """Return the settings, with the API that runs in `home`: it may have the connection to a bucket."""
    return read_settings(home=home, tables=tables, api_url=None)


def _size(size: int) -> str:
    """Return a number of bytes in its largest unit: `3.1 MiB`."""
    amount, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < KIB:
            break
        amount, unit = amount / KIB, larger
    return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
