"""Histories in folders of Parquet. The tasks read row groups themselves, without the JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import UsageError
from headrace.replay.inputs.column_paths import value_at
from headrace.replay.inputs.columns import as_micros, as_text
from headrace.replay.options import Fields
from headrace.replay.schemas import KEY, LEADER, OCCURRED, ORDERING_KEY

PART_ROWS: Final = 1_000_000
PART_BYTES: Final = 256 * 1024 * 1024
"""Approximate bytes that one task reads. A row group is never split."""
_BATCH: Final = 65_536


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Some row groups of one file. `partition_values` are the values of its folders (day=2026-11-21)."""

    path: str
    row_groups: tuple[int, ...]
    partition_values: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ParquetParts:
    """The rows of files, in parts that are read independently. `schema` is the common schema, `bytes` the uncompressed size."""

    parts: tuple[tuple[RowGroups, ...], ...]
    schema: pa.Schema
    fields: Fields
    bytes: int

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part with SLIM, and with ORDERING_KEY if the history has one."""
        for piece in self.parts[part]:
            with pq.ParquetFile(piece.path, memory_map=True, pre_buffer=False) as file:
                for batch in file.iter_batches(_BATCH, row_groups=list(piece.row_groups), use_threads=False):
                    yield with_slim(_shaped(batch, self.schema, dict(piece.partition_values)), self.fields)


def with_slim(rows: pa.RecordBatch, fields: Fields) -> pa.RecordBatch:
    """Return the rows with SLIM, and with ORDERING_KEY if the history has one."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns[KEY] = as_text(value_at(rows, fields.id))
    columns[LEADER] = pa.nulls(rows.num_rows, pa.string()) if fields.follows is None else as_text(value_at(rows, fields.follows))
    columns[OCCURRED] = pa.nulls(rows.num_rows, pa.int64()) if fields.occurred is None else as_micros(value_at(rows, fields.occurred))
    if fields.key is not None:
        columns[ORDERING_KEY] = as_text(value_at(rows, fields.key))
    return pa.RecordBatch.from_pydict(columns)


def _shaped(batch: pa.RecordBatch, schema: pa.Schema, partition_values: dict[str, str]) -> pa.RecordBatch:
    """Return the rows with the columns of the whole history; columns that the file lacks are null."""
    columns = []
    for field in schema:
        if field.name in partition_values:
            columns.append(pa.repeat(pa.scalar(partition_values[field.name], field.type), batch.num_rows))
        elif field.name in batch.schema.names:
            columns.append(batch.column(field.name).cast(field.type))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def parquet_parts(files: Sequence[tuple[Path, Path]], fields: Fields, min_parts: int) -> ParquetParts:
    """Inspect files, each with its root folder, and divide them into parts: `min_parts` or more, if there are enough row groups.

    Raises `UsageError` if a file is not Parquet, if types are incompatible, or if a field is missing or has an
    unsupported type.
    """
    pieces: list[tuple[RowGroups, int, int]] = []
    schema: pa.Schema | None = None
    for path, under in files:
        with _opened(path) as file:
            partition_values = _partition_values(path, under)
            schema = _joined(schema, _schema(file.schema_arrow, partition_values), path)
            groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        values = tuple(partition_values.items())
        pieces += [(RowGroups(str(path), (n,), values), group.num_rows, group.total_byte_size) for n, group in enumerate(groups)]
    if schema is None:
        raise UsageError("There are no files.")
    _check(schema, fields)
    return ParquetParts(_parts(pieces, min_parts), schema, fields, sum(size for _, _, size in pieces))


def _opened(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise UsageError(f"{path} is not a complete Parquet file: {error}", hint="Remove it, or write it again.") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}", hint="May you read it?") from error


def _partition_values(path: Path, under: Path) -> dict[str, str]:
    """Return the values of the folders between, as in day=2026-11-21."""
    between = path.relative_to(under).parent.parts
    return {name: unquote(value) for name, is_said, value in (part.partition("=") for part in between) if is_said}


def _schema(own: pa.Schema, partition_values: dict[str, str]) -> pa.Schema:
    for name in partition_values:
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
    for option, path in fields.paths().items():
        try:
            column = value_at(nothing, path)
        except KeyError as error:
            raise UsageError(
                f"--{option}: the history has no column {path!r}. It has: {', '.join(schema.names)}.", hint=hint(option, schema.names)
            ) from error
        try:
            (as_micros if option == "occurred" else as_text)(pa.array([], column.type))
        except pa.ArrowException as error:
            what, name = ("a time", "timestamps, seconds or texts") if option == "occurred" else ("a name", "texts or numbers")
            raise UsageError(f"--{option}: a column of type {column.type} is not {what}.", hint=f"Name one of {name}.") from error


def hint(option: str, known: Sequence[str]) -> str:
    """Return a hint about how to name a field."""
    example = known[0] if known else "name"
    return f"Name one of these, for example --{option} {example}, or let a watch say it: --project project.py --watch NAME."


def _parts(pieces: list[tuple[RowGroups, int, int]], min_parts: int) -> tuple[tuple[RowGroups, ...], ...]:
    rows, size = sum(rows for _, rows, _ in pieces), sum(size for _, _, size in pieces)
    count = max(min_parts, -(-rows // PART_ROWS), -(-size // PART_BYTES))
    parts: list[list[RowGroups]] = []
    full = 0.0
    for piece, its_rows, its_size in pieces:
        share = max(its_rows * count / max(rows, 1), its_size * count / max(size, 1))
        if not parts or full + share / 2 > 1:
            parts.append([])
            full = 0.0
        last = parts[-1]
        if last and last[-1].path == piece.path:
            last[-1] = RowGroups(piece.path, (*last[-1].row_groups, *piece.row_groups), piece.partition_values)
        else:
            last.append(piece)
        full += share
    return tuple(tuple(part) for part in parts) or ((),)
