"""How the command line shows what the api knows: plain aligned tables, or JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from pydantic import BaseModel
from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from headrace.cli.console import out, safe

_PADDING = 3
_LEAST_WRAPPED = 16

Cell = str | int | float | None


def show(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, empty: str) -> None:
    """Print a table. A column's name begins with '#' for numbers, '!' for trouble (red), '~' for what may be long; '!' and '~' wrap.

    Elsewhere than at a terminal each row is one line, and nothing is cut or wrapped.
    """
    rows = list(rows)
    if not rows:
        out.print(empty, markup=False)
    elif out.is_terminal:
        _show_table(columns, rows)
    else:
        _show_plain(columns, rows)


def _show_plain(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    names = [column.lstrip("#!~") for column in columns]
    texts = [names, *([_cell(column, value).plain.replace("\n", " ") for column, value in zip(columns, row, strict=True)] for row in rows)]
    widths = [max(cell_len(text) for text in column) for column in zip(*texts, strict=True)]
    for line in texts:
        padded = (_padded(text, width, column) for text, width, column in zip(line, widths, columns, strict=True))
        out.print("  ".join(padded).rstrip(), markup=False, no_wrap=True, overflow="ignore", crop=False)


def _padded(text: str, width: int, column: str) -> str:
    space = " " * (width - cell_len(text))
    return space + text if column.startswith("#") else text + space


def _show_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        long = column.startswith(("!", "~"))
        table.add_column(column.lstrip("#!~"), justify="right" if column.startswith("#") else "left", overflow="fold", no_wrap=not long)
    for row in rows:
        table.add_row(*(_cell(column, value) for column, value in zip(columns, row, strict=True)))
    # what does not wrap is never cut: such a table is wider than the terminal, which wraps it
    fixed = [column for column in table.columns if column.no_wrap]
    least = sum(max(cell_len(str(cell)) for cell in (column.header, *column.cells)) for column in fixed)
    out.print(table, width=max(out.width, least + _PADDING * len(columns) + _LEAST_WRAPPED * (len(columns) - len(fixed))))


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
