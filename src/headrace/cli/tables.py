"""How the command line shows what the api knows: plain aligned tables, or JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from pydantic import BaseModel
from rich import box
from rich.table import Table
from rich.text import Text

from headrace.cli.console import out, safe

Cell = str | int | float | None


def show(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, empty: str) -> None:
    """Print a table. A column's name begins with '#' for numbers, '!' for trouble (red), '~' for what may be long; '!' and '~' wrap."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        long = column.startswith(("!", "~"))
        table.add_column(column.lstrip("#!~"), justify="right" if column.startswith("#") else "left", overflow="fold", no_wrap=not long)
    for row in rows:
        table.add_row(*(_cell(column, value) for column, value in zip(columns, row, strict=True)))
    if table.row_count:
        out.print(table)
    else:
        out.print(empty, markup=False)


def show_json(what: BaseModel) -> None:
    """Print JSON, as the api gave it."""
    out.print(what.model_dump_json(indent=2), markup=False)


def ago(moment: datetime) -> str:
    """Return how long ago something was, in words as short as they can be."""
    return f"{_length((datetime.now(UTC) - moment).total_seconds())} ago"


def when(moment: datetime) -> str:
    """Return how long ago something was, or in how long it will be."""
    ahead = (moment - datetime.now(UTC)).total_seconds()
    return f"in {_length(ahead)}" if ahead > 0 else ago(moment)


def lasts(seconds: float) -> str:
    """Return how long something lasts, in its two largest units."""
    whole = max(0, round(seconds))
    for unit, size, rest, of in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // of} {rest}"
    return f"{whole} s"


def _length(seconds: float) -> str:
    whole = max(0, int(seconds))
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if whole >= size:
            return f"{whole // size} {unit}"
    return f"{whole} s"


def _cell(column: str, value: Cell) -> Text:
    if value is None:
        return Text("-", style="dim")
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return Text(safe(text), style="red" if column.startswith("!") and text else "")
