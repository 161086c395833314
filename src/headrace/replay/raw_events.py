"""Read an ordered history as raw events for triggers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
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


@dataclass(frozen=True, slots=True)
class RawEvents:
    """The events of the ordered history in `folder`, in order. It can be iterated repeatedly."""

    folder: Path
    names: HistoryColumns

    def parts(self) -> list[Path]:
        """Return the files, in order."""
        return sorted(self.folder.glob("part-*.parquet"))

    def __iter__(self) -> Iterator[Replayed]:
        for path in self.parts():
            for batch in pq.ParquetFile(path).iter_batches(batch_size=_BATCH):
                yield from replayed(batch, self.names)


def replayed(batch: pa.RecordBatch, names: HistoryColumns) -> Iterator[Replayed]:
    """Yield the events of some rows."""
    ids, positions = batch.column(_root(names.id)).to_pylist(), batch.column(POSITION).to_pylist()
    nothing: list[Any] = [None] * len(ids)
    has_times = names.occurred is not None and _root(names.occurred) in batch.schema.names
    occurred = batch.column(_root(names.occurred or "")).to_pylist() if has_times else nothing
    sources = batch.column("source").to_pylist() if names.raw is not None and "source" in batch.schema.names else nothing
    fired = batch.column("triggers").to_pylist() if names.raw is not None and "triggers" in batch.schema.names else nothing
    for position, id, when, source, by, data in zip(positions, ids, occurred, sources, fired, _data(batch, names), strict=True):
        moment = when if isinstance(when, datetime) else None
        yield Replayed(position, str(id), moment, source, RawEvent(data, LANE, position), by or ())


def _root(path: str) -> str:
    """Return the column of a path."""
    return path.lstrip("$.").split(".")[0].split("[")[0] if path.startswith("$") else path


def _data(batch: pa.RecordBatch, names: HistoryColumns) -> Iterator[bytes]:
    if names.raw is not None:
        for text in batch.column(names.raw).to_pylist():
            yield text.encode()
        return
    encode = msgspec.json.Encoder().encode
    for row in batch.drop_columns([POSITION, MARK]).to_pylist():
        yield encode(row)
