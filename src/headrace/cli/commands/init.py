"""`headrace init`: a small project that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from headrace.cli.console import out
from headrace.errors import ResourceError, UsageError

_PROJECT = '''"""Orders that are paid: who spent how much. See `headrace --help` and the guide."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace import Directory, Project

project = Project("{name}")

# One upstream: JSON-lines files that are renamed into this folder. However many triggers watch it, it is read once.
orders = Directory("inbox", pattern="*.jsonl")

project.watch(
    "orders.paid",
    orders,
    match={{"status": ["paid"]}},
    id="$.id",
    follows="$.follows",  # the event that must come first, if there is one
    subject="$.customer",
    occurred="$.at",
)


@project.pipeline(on="orders.*", table="spent", payload="customer string, amount double, status string")
def spent(orders: DataFrame) -> DataFrame:
    """Ordered events in, rows out; the rows are appended to the table `spent`, exactly once."""
    return orders.groupBy("subject").agg(F.sum("payload.amount").alias("amount"), F.count("*").alias("orders"))
'''

_SETTINGS = """# Settings of this project. A HEADRACE_… variable wins over this file, and a flag wins over both.
home = ".headrace"
project = "project.py"
lookback = 60  # seconds an event waits for the one it follows
"""

_ORDERS = """{"id": "o-2", "follows": "o-1", "customer": "Ada", "amount": 12.5, "status": "paid", "at": "2026-01-01T10:05:00Z"}
{"id": "o-1", "follows": null, "customer": "Ada", "amount": 30.0, "status": "paid", "at": "2026-01-01T10:00:00Z"}
{"id": "o-3", "follows": null, "customer": "Grace", "amount": 7.0, "status": "cancelled", "at": "2026-01-01T10:07:00Z"}
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("init", epilog="Example: [bold]headrace init orders[/bold]")(init)


def init(folder: Annotated[Path, typer.Argument(help="The folder to make.", metavar="FOLDER")]) -> None:
    """Write a small project that runs."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already and is not an empty folder.", hint="Name a folder that is new or empty.")
    name = folder.resolve().name
    try:
        (folder / "inbox").mkdir(parents=True)
        (folder / "project.py").write_text(_PROJECT.format(name=name))
        (folder / "headrace.toml").write_text(_SETTINGS)
        (folder / ".gitignore").write_text(".headrace/\ninbox/\n")
        (folder / "inbox" / "first.jsonl").write_text(_ORDERS)
    except OSError as error:
        raise ResourceError(f"Cannot write the project to {folder}: {error.strerror}.", hint="Choose a folder you may write to.") from error
    out.print(f"[bold green]✓[/] {escape(str(folder))}/project.py, headrace.toml and inbox/first.jsonl with three orders\n")
    out.print(f"Next:\n  cd {escape(str(folder))}\n  headrace standalone\n")
    out.print("Then, in a second terminal in that folder:\n  headrace runs\n  headrace events")
