"""Read an ordered history as raw events for triggers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.replay.options import HistoryColumns
from headrace.replay.schemas import MARK, POSITION
from headrace.triggers.raw_event import RawEvent

LANE = "replay"
_BATCH = 20_000


class Replayed(NamedTuple):
    """One event of an ordered history. `source`, and the `triggers` that fired on it, are only set for events of the log."""

    position: int
    id: str
    occurred: datetime | None
    source: str | None
    raw: RawEvent
    triggers: Sequence[str] = ()


class Identified(NamedTuple):
    """The position, the id and the time of an event."""

    position: int
    id: str
    occurred: datetime | None


class Positions:
    """A set of positions of an ordered history, in one bit for each event up to `last`."""

    def __init__(self, last: int) -> None:
        self.last = last
        self._bits = np.zeros(last // 8 + 1, dtype=np.uint8)

    @classmethod
    def of(cls, positions: Iterable[int]) -> Self:
        """Return the set of some positions."""
        ordered = np.unique(np.fromiter(positions, np.int64))
        one = cls(int(ordered[-1]) if len(ordered) else 0)
        one.add(ordered)
        return one

    def add(self, positions: npt.NDArray[np.int64]) -> None:
        """Add positions from 0 to `last`."""
        np.bitwise_or.at(self._bits, positions >> 3, (1 << (positions & 7)).astype(np.uint8))

    def has(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return whether each of some positions is in the set."""
        known = np.minimum(positions, self.last)
        bits: npt.NDArray[np.bool_] = (self._bits[known >> 3] >> (known & 7) & 1).astype(bool)
        return bits & (positions <= self.last)

    def may_have_any(self, first: int, last: int) -> bool:
        """Return False if no position from `first` to `last` is in the set."""
        return bool(self._bits[first >> 3 : (last >> 3) + 1].any())


@dataclass(frozen=True, slots=True)
class RawEvents:
    """The events of the ordered history in `folder`, in order. It can be iterated repeatedly."""

    folder: Path
    names: HistoryColumns

    def parts(self) -> list[Path]:
        """Return the files, in order."""
        return sorted(self.folder.glob("part-*.parquet"))

    def schema(self) -> pa.Schema:
        """Return the columns of the files. There must be one."""
        return pq.read_schema(self.parts()[0])

    def last_position(self) -> int:
        """Return the last position, or 0 if there are no events."""
        return max((last for path in self.parts() for _, _, last in _row_groups(pq.ParquetFile(path))), default=0)

    def at(self, positions: Positions) -> Iterator[Replayed]:
        """Yield the events at some positions, in order."""
        for batch in self._batches(positions):
            yield from replayed(batch, self.names)

    def identified(self, positions: Iterable[int]) -> dict[int, Identified]:
        """Return the ids and times of the events at a few positions."""
        columns = [POSITION, _root(self.names.id), *([_root(self.names.occurred)] if self.names.occurred is not None else [])]
        return {
            event.position: event for batch in self._batches(Positions.of(positions), columns) for event in _identified(batch, self.names)
        }

    def __iter__(self) -> Iterator[Replayed]:
        for path in self.parts():
            for batch in pq.ParquetFile(path).iter_batches(batch_size=_BATCH):
                yield from replayed(batch, self.names)

    def _batches(self, positions: Positions, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows at some positions. Row groups without any are not read."""
        for path in self.parts():
            file = pq.ParquetFile(path)
            groups = [number for number, first, last in _row_groups(file) if positions.may_have_any(first, last)]
            for batch in file.iter_batches(batch_size=_BATCH, row_groups=groups, columns=columns) if groups else ():
                yield batch.filter(pa.array(positions.has(batch.column(POSITION).to_numpy())))


def _row_groups(file: pq.ParquetFile) -> Iterator[tuple[int, int, int]]:
    """Yield the number, the first and the last position of each row group with rows."""
    column = file.schema_arrow.get_field_index(POSITION)
    for number in range(file.metadata.num_row_groups):
        statistics = file.metadata.row_group(number).column(column).statistics
        if statistics is not None and statistics.has_min_max:
            yield number, statistics.min, statistics.max


def replayed(batch: pa.RecordBatch, names: HistoryColumns) -> Iterator[Replayed]:
    """Yield the events of some rows."""
    nothing: list[Any] = [None] * batch.num_rows
    sources = batch.column("source").to_pylist() if names.raw is not None and "source" in batch.schema.names else nothing
    fired = batch.column("triggers").to_pylist() if names.raw is not None and "triggers" in batch.schema.names else nothing
    for (position, id, moment), source, by, data in zip(_identified(batch, names), sources, fired, _data(batch, names), strict=True):
        yield Replayed(position, id, moment, source, RawEvent(data, LANE, position), by or ())


def _identified(batch: pa.RecordBatch, names: HistoryColumns) -> Iterator[Identified]:
    ids, positions = batch.column(_root(names.id)).to_pylist(), batch.column(POSITION).to_pylist()
    has_times = names.occurred is not None and _root(names.occurred) in batch.schema.names
    occurred = batch.column(_root(names.occurred or "")).to_pylist() if has_times else [None] * len(ids)
    for position, id, when in zip(positions, ids, occurred, strict=True):
        yield Identified(position, str(id), when if isinstance(when, datetime) else None)


def _root(path: str) -> str:
    """Return the column of a path."""
    return path.lstrip("$.").split(".")[0].split("[")[0] if path.startswith("$") else path


def _data(batch: pa.RecordBatch, names: HistoryColumns) -> Iterator[bytes]:
    if names.raw is not None:
        for text in batch.column(names.raw).to_pylist():
            yield text.encode()
        return
    yield from encoded_rows(batch.drop_columns([POSITION, MARK]))


def encoded_rows(rows: pa.RecordBatch | pa.Table) -> Iterator[bytes]:
    """Yield each row as JSON. Times have microseconds."""
    schema = pa.schema([field.with_type(_in_micros(field.type)) for field in rows.schema])
    encode = msgspec.json.Encoder().encode
    for row in (rows if schema.equals(rows.schema) else rows.cast(schema, safe=False)).to_pylist():
        yield encode(row)


def _in_micros(kind: pa.DataType) -> pa.DataType:
    """Return a type with microseconds instead of nanoseconds, which Python's times do not have."""
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_micros(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_micros(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_in_micros(kind.value_type)))
    return kind
