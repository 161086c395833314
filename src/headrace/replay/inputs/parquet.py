"""Folders of Parquet as a history: read by the tasks themselves, a run of row groups each, without a way through the JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import UsageError
from headrace.replay.inputs.columns import as_micros, as_text
from headrace.replay.inputs.places import value_at
from headrace.replay.options import Fields
from headrace.replay.schemas import KEY, LEADER, OCCURRED, ORDERING_KEY

PART_ROWS: Final = 1_000_000
PART_BYTES: Final = 256 * 1024 * 1024
"""About so much is read by one task; a row group is never cut."""
_BATCH: Final = 65_536


@dataclass(frozen=True, slots=True)
class Piece:
    """Some row groups of one file; `told` are the values that its folders say (day=2026-11-21)."""

    path: str
    row_groups: tuple[int, ...]
    told: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ParquetParts:
    """The rows of files, in parts that are read alone. `schema` is that of them all, and `bytes` what they take when unpacked."""

    parts: tuple[tuple[Piece, ...], ...]
    schema: pa.Schema
    fields: Fields
    bytes: int

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part with SLIM, and with ORDERING_KEY where there is one."""
        for piece in self.parts[part]:
            with pq.ParquetFile(piece.path, memory_map=True, pre_buffer=False) as file:
                for batch in file.iter_batches(_BATCH, row_groups=list(piece.row_groups), use_threads=False):
                    yield with_slim(_shaped(batch, self.schema, dict(piece.told)), self.fields)


def with_slim(rows: pa.RecordBatch, fields: Fields) -> pa.RecordBatch:
    """Return the rows with SLIM, and with ORDERING_KEY where there is one."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns[KEY] = as_text(value_at(rows, fields.id))
    columns[LEADER] = pa.nulls(rows.num_rows, pa.string()) if fields.follows is None else as_text(value_at(rows, fields.follows))
    columns[OCCURRED] = pa.nulls(rows.num_rows, pa.int64()) if fields.occurred is None else as_micros(value_at(rows, fields.occurred))
    if fields.key is not None:
        columns[ORDERING_KEY] = as_text(value_at(rows, fields.key))
    return pa.RecordBatch.from_pydict(columns)


def _shaped(batch: pa.RecordBatch, schema: pa.Schema, told: dict[str, str]) -> pa.RecordBatch:
    """Return the rows with the columns of the whole history: what a file lacks is null."""
    columns = []
    for field in schema:
        if field.name in told:
            columns.append(pa.repeat(pa.scalar(told[field.name], field.type), batch.num_rows))
        elif field.name in batch.schema.names:
            columns.append(batch.column(field.name).cast(field.type))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def parquet_parts(files: Sequence[tuple[Path, Path]], fields: Fields, at_least: int) -> ParquetParts:
    """Look at files, each with the folder that was named, and cut them into parts, at least so many where there are row groups enough.

    Raises `UsageError` where a file is no Parquet, types do not fit together, or a field is not there or not of a type that will do.
    """
    pieces: list[tuple[Piece, int, int]] = []
    schema: pa.Schema | None = None
    for path, under in files:
        with _opened(path) as file:
            told = _told(path, under)
            schema = _joined(schema, _schema(file.schema_arrow, told), path)
            groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        values = tuple(told.items())
        pieces += [(Piece(str(path), (n,), values), group.num_rows, group.total_byte_size) for n, group in enumerate(groups)]
    if schema is None:
        raise UsageError("There are no files.")
    _check(schema, fields)
    return ParquetParts(_parts(pieces, at_least), schema, fields, sum(size for _, _, size in pieces))


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise UsageError(f"{path} is not a complete Parquet file: {error}", hint="Remove it, or write it again.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}", hint="May you read it?") from error


def _told(path: Path, under: Path) -> dict[str, str]:
    """Return what the folders between say, as in day=2026-11-21."""
    between = path.relative_to(under).parent.parts
    return {name: unquote(value) for name, is_said, value in (part.partition("=") for part in between) if is_said}


def _schema(own: pa.Schema, told: dict[str, str]) -> pa.Schema:
    for name in told:
        if name not in own.names:
            own = own.append(pa.field(name, pa.string()))
    return own.remove_metadata()


def _joined(schema: pa.Schema | None, other: pa.Schema, path: Path) -> pa.Schema:
    if schema is None:
        return other
    try:
        return pa.unify_schemas([schema, other], promote_options="permissive")
    except pa.ArrowException as error:
        raise UsageError(
            f"The columns of {path} are not those of the files before it: {error}", hint="Replay them one after the other, or convert some."
        ) from error


def _check(schema: pa.Schema, fields: Fields) -> None:
    nothing = schema.empty_table()
    for option, place in fields.asked().items():
        try:
            column = value_at(nothing, place)
        except KeyError as error:
            raise UsageError(
                f"--{option}: the history has no column {place!r}. It has: {', '.join(schema.names)}.", hint=hint(option, schema.names)
            ) from error
        try:
            (as_micros if option == "occurred" else as_text)(pa.array([], column.type))
        except pa.ArrowException as error:
            what, name = ("a time", "timestamps, seconds or texts") if option == "occurred" else ("a name", "texts or numbers")
            raise UsageError(f"--{option}: a column of type {column.type} is not {what}.", hint=f"Name one of {name}.") from error


def hint(option: str, known: Sequence[str]) -> str:
    """Return how a field may be named."""
    example = known[0] if known else "name"
    return f"Name one of these, for example --{option} {example}, or let a watch say it: --project project.py --watch NAME."


def _parts(pieces: list[tuple[Piece, int, int]], at_least: int) -> tuple[tuple[Piece, ...], ...]:
    rows, size = sum(rows for _, rows, _ in pieces), sum(size for _, _, size in pieces)
    count = max(at_least, -(-rows // PART_ROWS), -(-size // PART_BYTES))
    parts: list[list[Piece]] = []
    full = 0.0
    for piece, its_rows, its_size in pieces:
        share = max(its_rows * count / max(rows, 1), its_size * count / max(size, 1))
        if not parts or full + share / 2 > 1:
            parts.append([])
            full = 0.0
        last = parts[-1]
        if last and last[-1].path == piece.path:
            last[-1] = Piece(piece.path, (*last[-1].row_groups, *piece.row_groups), piece.told)
        else:
            last.append(piece)
        full += share
    return tuple(tuple(part) for part in parts) or ((),)
