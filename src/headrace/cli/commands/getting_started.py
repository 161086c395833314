"""`headrace init`, `headrace demo` and `headrace prepare-spark`: a small project that runs, a complete job, and a faster start of Spark."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer
from rich.markup import escape

from headrace.cli.console import err, out
from headrace.cli.groups import examples
from headrace.cli.log_setup import set_up_logging
from headrace.cli.options import Master, Port
from headrace.errors import ResourceError, UsageError
from headrace.process.lifeline import hold_lifeline
from headrace.settings import read_settings

DEFAULT_HOME: Final = Path("headrace-demo")

_PROJECT: Final = '''"""Sum what each customer spent on paid orders. See `headrace --help` and the guide."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace import Directory, Project

project = Project("{name}")

# An upstream: JSON-lines files that are renamed into this folder. It is read once, however many triggers watch it.
orders = Directory("inbox", pattern="*.jsonl")

project.watch(
    "orders.paid",
    orders,
    match={{"status": ["paid"]}},
    id="$.id",
    follows="$.follows",  # the id of the event that must come first, or null
    subject="$.customer",
    occurred="$.at",
)


@project.pipeline(
    on="orders.*",
    table="spent",
    key="customer",
    columns="customer string, amount double, orders long",
    payload="customer string, amount double, status string",
)
def spent(orders: DataFrame, rows: DataFrame) -> DataFrame:
    """Return a row for each customer of these orders. It replaces the customer's row in the table, which is in `rows`, exactly once."""
    new = orders.select("payload.customer", "payload.amount", F.lit(1).alias("orders"))
    return new.unionByName(rows).groupBy("customer").agg(F.sum("amount").alias("amount"), F.sum("orders").alias("orders"))
'''

_SETTINGS: Final = """# Settings of this project. A HEADRACE_… variable overrides this file, and a flag overrides both.
home = ".headrace"
project = "project.py"
lookback = 60  # seconds for which an event waits for the one it follows
"""

_ORDERS: Final = """{"id": "o-2", "follows": "o-1", "customer": "Ada", "amount": 12.5, "status": "paid", "at": "2026-01-01T10:05:00Z"}
{"id": "o-1", "follows": null, "customer": "Ada", "amount": 30.0, "status": "paid", "at": "2026-01-01T10:00:00Z"}
{"id": "o-3", "follows": null, "customer": "Grace", "amount": 7.0, "status": "cancelled", "at": "2026-01-01T10:07:00Z"}
"""

Folder = Annotated[Path, typer.Argument(help="A new or empty folder.", metavar="FOLDER", show_default=False)]
Home = Annotated[Path, typer.Option("--home", help="Folder for all files of the demo.", metavar="DIR")]
Year = Annotated[bool, typer.Option("--year", help="All of 2013, 336,776 departures, instead of January's 27,004.")]
Seed = Annotated[
    int, typer.Option("--seed", min=0, help="Seed of the delays, duplicates, losses and broken lines of the feed.", metavar="N")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Delete an unfinished run first.")]
Hold = Annotated[bool, typer.Option("--hold", help="Serve the status page at the end, until Ctrl-C.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("init", epilog=examples("headrace init orders"))(init)
    app.command("demo", epilog=examples("headrace demo", "headrace demo --year --seed 7"))(demo)
    app.command("prepare-spark", epilog=examples("headrace prepare-spark"))(prepare_spark)
    app.command("demo-feed", hidden=True)(demo_feed)


def init(folder: Folder) -> None:
    """Write a small project that runs."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not an empty folder.", hint="Name a folder that is new or empty.")
    name = folder.resolve().name
    try:
        (folder / "inbox").mkdir(parents=True)
        (folder / "project.py").write_text(_PROJECT.format(name=name))
        (folder / "headrace.toml").write_text(_SETTINGS)
        (folder / ".gitignore").write_text(".headrace/\ninbox/\n")
        (folder / "inbox" / "first.jsonl").write_text(_ORDERS)
    except OSError as error:
        raise ResourceError(
            f"Cannot write the project to {folder}: {error.strerror}.", hint="Choose a folder that you can write to."
        ) from error
    out.print(f"[bold green]✓[/] {escape(str(folder))}/project.py, headrace.toml and inbox/first.jsonl with three orders\n")
    out.print(f"Next:\n  cd {escape(str(folder))}\n  headrace standalone\n")
    out.print("Then, in a second terminal in that folder:\n  headrace runs\n  headrace events")


def demo(
    year: Year = False,
    seed: Seed = 1,
    home: Home = DEFAULT_HOME,
    port: Port = None,
    master: Master = None,
    fresh: Fresh = False,
    hold: Hold = False,
) -> None:
    """Run a complete job on real flights, and check that no event is lost, repeated or out of order.

    Ctrl-C stops it. The same command continues where it stopped. Exit code 0 means that the check succeeded.
    """
    from headrace.demo.job import DemoOptions, run_demo  # here, since it loads Arrow and Matplotlib

    settings = read_settings(home=home.absolute(), port=port, master=master)
    set_up_logging(settings, quiet=True)
    options = DemoOptions(period="year" if year else "january", seed=seed, fresh=fresh, hold=hold)
    raise typer.Exit(asyncio.run(run_demo(settings, options, out)))


def prepare_spark() -> None:
    """Make Spark start in half the time: archive its classes in this Python environment. It takes about a minute.

    Run it once after an installation or an update of Headrace, PySpark or Java. The archive has about 190 MB.
    """
    from headrace.pipeline.spark.class_archive_writer import create_class_archive  # here, since it loads PySpark

    with TemporaryDirectory(prefix="headrace-prepare-") as work, err.status("Loading and archiving the classes of Spark …"):
        archive = create_class_archive(Path(work))
    out.print(f"[bold green]✓[/] {escape(str(archive))} ({archive.stat().st_size / 1e6:.0f} MB)")


def demo_feed(home: Home, seed: Seed = 1, period: str = "january") -> None:
    """Write the feed of the demo (started by the demo)."""
    from headrace.demo.feed.process import main

    hold_lifeline()
    raise typer.Exit(main(["--home", str(home), "--seed", str(seed), "--period", period]))
