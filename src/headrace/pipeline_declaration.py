"""The declaration of a pipeline, and checks of its arguments. Each check returns the value, or raises `ProjectError`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, get_args

from headrace.core.batching import BatchPolicy, Debounce, Window
from headrace.core.values.ddl import check_ddl, column_types
from headrace.errors import ProjectError

TABLE = re.compile(r"[A-Za-z_]\w{0,199}", re.ASCII)
OnFailure = Literal["release", "hold"]
TableFormat = Literal["parquet", "delta", "iceberg"]
KEY_TYPES: Final = frozenset(
    {"boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long", "decimal", "dec", "numeric"}
    | {"date", "timestamp", "timestamp_ltz", "timestamp_ntz", "string", "binary"}
)
"""The types of a key. Statistics of Delta do not find all values of a `double`."""
Key = str | Sequence[str] | Mapping[str, str]


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """The key of a keyed table, and its columns as DDL.

    `key` has the names of the key's columns, each with the SQL expression of its value in an event, or None for the event's column of that
    name, or else the payload's field of that name.
    """

    key: tuple[tuple[str, str | None], ...]
    columns: str


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How an append table is written: the columns that partition it, and whether columns that it lacks are added to it."""

    partition_by: tuple[str, ...] = ()
    evolve: bool = False


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline: the user's function, the triggers whose events it takes (glob patterns), and where its rows go.

    `payload` is the DDL schema of the payload (None: inferred elsewhere); `table` None: the function writes for itself; `format` and
    `options` are those of the table. `keyed` has the key of a table whose rows are replaced.
    """

    name: str
    on: tuple[str, ...]
    function: Callable[..., Any]
    table: str | None
    payload: str | None
    batch: BatchPolicy
    attempts: int
    format: TableFormat = "parquet"
    on_failure: OnFailure = "release"
    keyed: KeyedTable | None = None
    options: TableOptions = TableOptions()

    def takes(self, trigger_name: str) -> bool:
        """Whether the pipeline takes the events of the trigger of this name."""
        return any(fnmatchcase(trigger_name, pattern) for pattern in self.on)


def check_patterns(on: object, pipeline: str) -> tuple[str, ...]:
    """Return the triggers that the pipeline takes."""
    patterns = (on,) if isinstance(on, str) else tuple(on) if isinstance(on, Sequence) else ()
    if not patterns or not all(isinstance(pattern, str) and pattern for pattern in patterns):
        raise ProjectError(f"The pipeline {pipeline!r} has on={on!r}.", hint="Name the triggers: on='legs.*' or on=['legs.united'].")
    return patterns


def check_payload(payload: object, pipeline: str) -> str | None:
    """Return the schema of the payload."""
    if payload is None:
        return None
    if not isinstance(payload, str):
        raise ProjectError(
            f"The pipeline {pipeline!r} has payload={payload!r}.", hint="Give a schema: payload='customer string, amount double'."
        )
    try:
        check_ddl(payload)
    except ValueError as error:
        hint = "Give it as in SQL: payload='customer string, amount double, items array<struct<name: string>>'."
        raise ProjectError(f"The pipeline {pipeline!r} has payload={payload!r}: {error}", hint=hint) from error
    return payload


def check_table(table: object, pipeline: str) -> str | None:
    """Return the table's name."""
    if table is None:
        return None
    if not isinstance(table, str) or not TABLE.fullmatch(table):
        raise ProjectError(f"The pipeline {pipeline!r} has table={table!r}.", hint="A table's name has letters, digits and '_'.")
    return table


def check_format(format: TableFormat | None, keyed: KeyedTable | None, pipeline: str) -> TableFormat:
    """Return the format of the table."""
    chosen: TableFormat = format or ("delta" if keyed else "parquet")
    if chosen not in get_args(TableFormat):
        raise ProjectError(f"The pipeline {pipeline!r} has the format {format!r}.", hint="There are 'parquet', 'delta' and 'iceberg'.")
    if keyed and chosen == "parquet":
        raise ProjectError(
            f"The pipeline {pipeline!r} has a key and the format {format!r}.", hint="A keyed table has the format 'delta' or 'iceberg'."
        )
    return chosen


def check_options(partition_by: object, *, evolve: object, format: TableFormat, keyed: KeyedTable | None, pipeline: str) -> TableOptions:
    """Return how the table is written."""
    names = (partition_by,) if isinstance(partition_by, str) else partition_by
    who = f"The pipeline {pipeline!r}"
    if not isinstance(names, Sequence) or not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise ProjectError(f"{who} has partition_by={partition_by!r}.", hint="Name columns of its rows: partition_by='day'.")
    if not isinstance(evolve, bool):
        raise ProjectError(f"{who} has evolve={evolve!r}.", hint="evolve=True adds the columns of its rows that the table lacks.")
    if keyed and (names or evolve):
        which = "partition_by=" if names else "evolve="
        raise ProjectError(f"{who} has a key and {which}.", hint="A keyed table is not partitioned, and has the columns of columns=.")
    if names and format == "parquet":
        raise ProjectError(
            f"{who} has partition_by= and the format {format!r}.",
            hint="Give it format='delta' or format='iceberg', or no partition_by=: a run of a Parquet table is one file.",
        )
    return TableOptions(tuple(names), evolve)


def check_other_writers(pipeline: Pipeline, others: Iterable[Pipeline]) -> None:
    """Raise `ProjectError` if another pipeline writes the table in another way."""
    for other in others:
        if pipeline.table is None or other.table != pipeline.table:
            continue
        both = f"The pipelines {other.name!r} and {pipeline.name!r} write the"
        if other.format != pipeline.format:
            raise ProjectError(f"{both} table {pipeline.table!r} in two formats.")
        if pipeline.keyed or other.keyed:
            raise ProjectError(
                f"{both} keyed table {pipeline.table!r}.",
                hint="A keyed table has one pipeline, which computes its rows from its earlier rows. Give each one a table.",
            )
        if other.options != pipeline.options:
            raise ProjectError(f"{both} table {pipeline.table!r}, with different partition_by= or evolve=.")


def check_key(key: object, columns: object, table: str | None, pipeline: str) -> KeyedTable | None:
    """Return the key and the columns of a keyed table, or None if neither is declared."""
    if key is None and columns is None:
        return None
    who = f"The pipeline {pipeline!r}"
    example = "table='spent', key='customer', columns='customer string, spent double'"
    if key is None or columns is None or table is None:
        missing = " and ".join(name for name, value in (("table=", table), ("key=", key), ("columns=", columns)) if value is None)
        raise ProjectError(f"{who} has no {missing}.", hint=f"A keyed table needs table=, key= and columns=: {example}.")
    pairs = _key_pairs(key)
    if not pairs or len({name for name, _ in pairs}) < len(pairs):
        raise ProjectError(
            f"{who} has key={key!r}.",
            hint="Name the columns of the key: key='customer', key=['shop', 'customer'], or with the expression of each value in an event: "
            "key={'customer': 'payload.order.customer'}.",
        )
    if not isinstance(columns, str):
        raise ProjectError(f"{who} has columns={columns!r}.", hint=f"Give a schema: {example}.")
    try:
        types = column_types(columns)
    except ValueError as error:
        raise ProjectError(f"{who} has columns={columns!r}: {error}", hint=f"Give it as in SQL: {example}.") from error
    for name, _ in pairs:
        if name not in types:
            raise ProjectError(f"{who} has the key {name!r}, which columns= does not declare.", hint=f"Declare it: {example}.")
        if types[name] not in KEY_TYPES:
            raise ProjectError(
                f"{who} has the key {name!r} of the type {types[name]}, whose values are not compared exactly.",
                hint=f"There are keys of these types: {', '.join(sorted(KEY_TYPES))}.",
            )
    return KeyedTable(pairs, columns)


def _key_pairs(key: object) -> tuple[tuple[str, str | None], ...]:
    """Return the columns of a key with their expressions, or nothing if the key is invalid."""
    if isinstance(key, str):
        key = [key]
    if isinstance(key, Mapping):
        pairs = tuple(key.items())
        return pairs if all(isinstance(text, str) and text for pair in pairs for text in pair) else ()
    if isinstance(key, Sequence) and all(isinstance(name, str) and name for name in key):
        return tuple((name, None) for name in key)
    return ()


def check_batch(batch: object, pipeline: str) -> BatchPolicy:
    """Return the batch policy."""
    if batch == "micro" or batch == "each" or isinstance(batch, Debounce | Window):
        return batch
    raise ProjectError(f"The pipeline {pipeline!r} has batch={batch!r}.", hint="There are: 'micro', 'each', Debounce(...) and Window(...).")


def check_attempts(attempts: object, pipeline: str) -> int:
    """Return how often a run is attempted."""
    if not isinstance(attempts, int) or attempts < 1:
        raise ProjectError(f"The pipeline {pipeline!r} has attempts={attempts!r}.", hint="Give it a number of at least 1.")
    return attempts


def check_on_failure(on_failure: OnFailure, pipeline: str) -> OnFailure:
    """Return what becomes of the followers of a failed event."""
    if on_failure not in get_args(OnFailure):
        raise ProjectError(
            f"The pipeline {pipeline!r} has on_failure={on_failure!r}.",
            hint="There are 'release' (what follows a failed event goes on) and 'hold' (it waits for the dead letter).",
        )
    return on_failure
