"""Rendering of responses: as a table or a list of facts for users, or as JSON for programs.

On a terminal, a table that does not fit is printed as a block for each row. Elsewhere, each row is one line: nothing is cut or wrapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel
from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from headrace.cli.console import out, safe

_PADDING: Final = 3
_MIN_WRAPPED_WIDTH: Final = 16

Cell = str | int | float | None


class Column(NamedTuple):
    """The heading of a column, and how its cells are shown. `wraps` permits a terminal to wrap them."""

    name: str
    justify: Literal["left", "right"] = "left"
    wraps: bool = False
    style: str = ""


Columns = Sequence[str | Column]


def number(name: str) -> Column:
    """Return a column of numbers."""
    return Column(name, justify="right")


def long(name: str) -> Column:
    """Return a column of texts that may be long."""
    return Column(name, wraps=True)


def problem(name: str) -> Column:
    """Return a column of errors and other problems."""
    return Column(name, wraps=True, style="red")


def render(response: BaseModel, columns: Columns, rows: Iterable[Sequence[Cell]], *, json: bool, empty: str) -> None:
    """Print a list: the response as JSON, or its rows as a table. `empty` is printed if there are no rows."""
    if json:
        print_json(response)
    else:
        print_table(columns, rows, empty=empty)


def render_facts(response: BaseModel, facts: Mapping[str, object], *, json: bool, text: str = "") -> None:
    """Print one resource: the response as JSON, or its facts as a table of names and values, followed by a text."""
    if json:
        print_json(response)
        return
    print_table(["name", long("value")], [(name, None if value is None else str(value)) for name, value in facts.items()])
    if text:
        out.print(text, markup=False)


def print_json(response: BaseModel) -> None:
    """Print a response as JSON."""
    out.print(response.model_dump_json(indent=2), markup=False)


def print_table(columns: Columns, rows: Iterable[Sequence[Cell]], *, empty: str = "") -> None:
    """Print a table, or the text `empty` if there are no rows."""
    headings = [Column(column) if isinstance(column, str) else column for column in columns]
    cells = [[_text(column, value) for column, value in zip(headings, row, strict=True)] for row in rows]
    if not cells:
        out.print(empty, markup=False)
    elif not out.is_terminal:
        _print_lines(headings, cells)
    elif _min_width(headings, cells) <= out.width:
        _print_table(headings, cells)
    else:
        _print_blocks(headings, cells)


def ago(time: datetime) -> str:
    """Return the time since then in its largest unit: `3 min ago`."""
    return f"{_length((datetime.now(UTC) - time).total_seconds())} ago"


def ago_or_ahead(time: datetime) -> str:
    """Return the time since then, or until then: `in 3 min`."""
    ahead = (time - datetime.now(UTC)).total_seconds()
    return f"in {_length(ahead)}" if ahead > 0 else ago(time)


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: `2 h 5 min`."""
    whole = max(0, round(seconds))
    for unit, size, smaller_unit, smaller_size in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller_size} {smaller_unit}"
    return f"{whole} s"


def count(number: int, noun: str) -> str:
    """Return a number and its noun: `1 message`, `2 messages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def first_line(text: str | None) -> str:
    """Return the first line of a text, such as the message of an error with its traceback."""
    return (text or "").partition("\n")[0]


def _length(seconds: float) -> str:
    whole = max(0, int(seconds))
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if whole >= size:
            return f"{whole // size} {unit}"
    return f"{whole} s"


def _text(column: Column, value: Cell) -> Text:
    if value is None:
        return Text("-", style="dim")
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return Text(safe(text), style=column.style if text else "")


def _min_width(columns: Sequence[Column], rows: Sequence[Sequence[Text]]) -> int:
    """Return the width of the table with the columns that wrap at their narrowest."""
    widths = [max(cell_len(text) for text in (column.name, *(str(row[at]) for row in rows))) for at, column in enumerate(columns)]
    narrow = (min(width, _MIN_WRAPPED_WIDTH) if column.wraps else width for column, width in zip(columns, widths, strict=True))
    return sum(narrow) + _PADDING * (len(columns) - 1)


def _print_lines(columns: Sequence[Column], rows: Sequence[Sequence[Text]]) -> None:
    lines = [[column.name for column in columns], *([text.plain.replace("\n", " ") for text in row] for row in rows)]
    widths = [max(cell_len(text) for text in texts) for texts in zip(*lines, strict=True)]
    for line in lines:
        padded = (_padded(text, width, column) for text, width, column in zip(line, widths, columns, strict=True))
        out.print("  ".join(padded).rstrip(), markup=False, no_wrap=True, overflow="ignore", crop=False)


def _padded(text: str, width: int, column: Column) -> str:
    space = " " * (width - cell_len(text))
    return space + text if column.justify == "right" else text + space


def _print_table(columns: Sequence[Column], rows: Sequence[Sequence[Text]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.name, justify=column.justify, overflow="fold", no_wrap=not column.wraps)
    for row in rows:
        table.add_row(*row)
    out.print(table)


def _print_blocks(columns: Sequence[Column], rows: Sequence[Sequence[Text]]) -> None:
    """Print each row as a block of names and values, for a terminal that is narrower than the table."""
    for row in rows:
        block = Table.grid(padding=(0, 2))
        block.add_column(style="bold", no_wrap=True)
        block.add_column(overflow="fold")
        for column, text in zip(columns, row, strict=True):
            if text.plain:
                block.add_row(column.name, text)
        out.print(block)
        out.print()
